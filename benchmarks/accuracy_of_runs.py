"""What the accuracy page says of runs that go on: their losses, and being tuned on the way.

Title, command, text, script, whether it needs data, its arguments.
"""

from __future__ import annotations

SECTIONS_OF_RUNS = (
    (
        "Forecasts from the losses of a run",
        (
            "`scav watch --target-loss` and `scav actuals` of a run whose losses are known; what the plan says "
            "goes into both."
        ),
        (
            "Samples to a target metric from the first 25, 50 and 75 % of the samples that a run needs, on "
            "Sia's validation curves, each application left out of both constants. Beside it a power law with "
            "offset fitted by least squares, and the plan alone: what it says of this batch from one run at "
            "another. A curve alone says little before it bends, which is what its intervals say; the power law "
            "is about as far off and does not. It adds to a plan that it notices a run that leaves it, no "
            "nearer middle."
        ),
        "loss_forecast",
        True,
        (),
    ),
    (
        "Searching while training",
        ("`scav tune --online`, and `scav tune` (offline); all runs are real processes on two shared cores."),
        (
            "examples/tiny-transformer trained to a fixed loss with any of ten configurations of workers and "
            "local batch. The oracle knows the best of them, and offline probes first and trains then. A "
            "machine that is busy makes a clock say little, so steps are counted and paid at one price for all "
            "ways, measured between the runs with all configurations in turn; searching, starts and ends are of "
            "the clock, and steps that scav watches cost what they cost more (a tenth of these, which take 6 ms "
            "alone; less of longer ones). `by the clock` is the online run's whole time over an oracle at the "
            "pace before and after it.\n\n"
            "Measured at a load of 15 to 37 on two cores: steps there take twice as long from one minute to the "
            "next, and scav goes elsewhere on account of it. So in runs of three minutes it beats probing first "
            "by far, and no tuning not at all: two of three seeds chose by what other minutes had been like."
        ),
        "online",
        False,
        ("--work", "online-work"),
    ),
)
