"""Runs every accuracy benchmark and writes what they print to a page: `accuracy_page.py --data DIR docs/accuracy.md`.

A figure of the step-time errors is drawn beside it, `accuracy.svg`. Nothing on the page is written by hand. All of it
takes a while; `--only cold_start feeding` makes these anew and leaves the rest of the page as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from accuracy_of_runs import SECTIONS_OF_RUNS

HERE = Path(__file__).parent
SHOWN = ("scav", "forest", "physical", "pollux")  # four bars a split can still be told apart

HEAD = """\
<!-- Written by benchmarks/accuracy_page.py (make bench DATA=dir); edit that instead -->

# How accurate scav is

Errors on public measurements that nobody here took, each beside its baselines from the same run. All are mean absolute
percentage errors, and coverage is the share of held-out measurements inside the 90 % interval. What each model is:
[models.md](models.md). Every table says which command does what it measures; what no command does is not here.

Step times and samples: the scav column is nested, so that nothing in it was estimated from the tested application or
benchmark. Elsewhere the constants of the models were chosen with these benchmarks in view. "App left out" estimates
what is pooled over applications without the tested one, and is the better guide for a new one.
"""


class Section(NamedTuple):
    title: str
    command: str
    text: str
    script: str
    needs_data: bool = True
    arguments: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "Step time",
        "`scav predict` and `scav plan` fit this model to each probed instance type; row G with `--history`.",
        "Seconds per step of data-parallel training, measured on four node types. Splits: A, B random rows and "
        "placements; C, D few random rows; E, F more GPUs than measured; G more nodes, with what other applications "
        "showed on the node type; H larger batches; I few rows and more GPUs; P at most 12 probes on 1 to 4 nodes. "
        "The commands know a little more, since their priors begin at data sheets, and are asked for whole nodes "
        "only.\n\nFour applications were given: BERT, ResNet-18, ResNet-50, NCF. In the columns scav and physical the "
        "prior, the one thing that is estimated from other jobs, comes from the other three "
        "(`benchmarks/calibrate.py`); as shipped it comes from all four. The form of the model was chosen among some "
        "seventy settings by nested scores on these four, so a new application may still fare worse. Expect of one: "
        "4 to 8 % between measurements, 10 to 15 % beyond them, and several times that where something begins that no "
        "probe has seen. The groups that fare worst say what: NCF on eight V100 a node, whose links take five times as "
        "long with eight GPUs as with four; ResNet-50 there, which waits for its samples from three nodes on; BERT on "
        "sixteen T4 nodes."
        "\n\n![Errors by split](accuracy.svg)",
        "step_time",
        arguments=("--json",),
    ),
    Section(
        "Step time on two more clusters",
        "`scav predict` and `scav plan`, as above.",
        "The same applications on DGX-A100 (the first, smaller campaign) and on a single node of four Quadro RTX 6000. "
        "They are no clean test: three things were looked for because of what failed here. That the share of work that "
        "does not grow with the batch may be nearly all of it; that where all batches that were measured are bound by "
        "the host, the middle of the growth that they allow is expected and not the most; and that far from all probes "
        "the middle of two forms is expected, with a host and without. The last is for ResNet-50 on the Quadro node, "
        "row H, where only the largest batch that was measured was not bound by the host (41 % before). Eleven ways "
        "were tried there, with both tables in view: a deviation of each batch that all placements share (two "
        "widths: better here, by a point worse in row H above), softer bounds of the host (two), the form without a "
        "host alone, and shares between both forms by what the job's rows say (four: they say the wrong thing, "
        "since kernels of one batch are measured on all placements) or half and half, which is what is used (also "
        "tried without the middle of what is allowed), and the better in row H of both tables.",
        "step_time",
        arguments=("--cluster", "dgx", "quad", "--split", "A", "B", "C", "D", "E", "H", "P"),
    ),
    Section(
        "What each part of the step-time model is worth",
        "`scav predict` and `scav plan`, as above.",
        "The nested scores of the first table with one part of the model off at a time; what is pooled and fitted is "
        "done again without it. Gain: by how much the error grows without the part, and its standard error over the "
        "groups of an application and a cluster. The interval score is the width of the 90 % interval in percent, and "
        "twenty times as much as a row lies outside: parts that only widen intervals are judged by it.\n\n"
        "Parts that are no longer there were removed one on top of the other, with the mean error without them "
        "(11.54 % before) and the mean interval score (105.4): deviations of work and of placements, as "
        "far as it helped, odd rows that lose weight (11.56, 106.7); hidden communication (11.56, 108.3, one noise of "
        "0.05 for the two there were); `growth` and `host_growth` (11.43, 108.2 with the former noises); "
        "explanations averaged, and their disagreement (11.44, 109.1). The prior's long tails are those of all "
        "parameters now instead of four (11.46 instead of 11.48). All together, with the middle of what host-bound "
        "probes allow: 11.49 and 108.3; 92.9 % inside, as before. Since then, over the splits of this table and F: the "
        "middle of two forms far from probes 11.99 instead of 12.04; without `contention` 12.05; one robust loss and "
        "one standard deviation of steps and work instead of two of each 11.97, with the former bend 11.90. The middle "
        "of two forms gains 0.28 ± 0.21 over the groups of both tables above, 0.07 ± 0.09 over those of the first. "
        "Tried and not taken: correlated errors in the fit of the form (12.4), no long tails (11.51, 10.9 instead of "
        "10.3 on P), a prior of the fixed share that does not pull (no difference), a batch exponent without bounds "
        "(12.36), one reach for all deviations (11.83, but the forest no longer joins where it should).\n\n"
        "What stays although its gain is not above its standard error: `width_power` is worth most on one network, on "
        "eight V100 a node, and little elsewhere. That a forest must earn its place guards against rows that mislead; "
        "these tables have few, tests make them up. Doubt per doubling buys three points of coverage and no better "
        "interval score.",
        "ablation",
        arguments=("--split", "C", "E", "G", "H", "I", "P"),
    ),
    Section(
        "What corrections are worth between measurements",
        "`scav predict` and `scav plan`, as above.",
        "The same where there are many rows near: placements left out, 25 random rows, and more GPUs from all rows of "
        "up to eight. Here the forest joins, if it does.",
        "ablation",
        arguments=("--split", "B", "D", "F", "--part", "correction", "forest", "interval"),
    ),
    Section(
        "Samples to the target",
        "`scav predict` and `scav plan`, from the runs under `workload.convergence` in `scav.yaml`.",
        "How much data reaches the target at a batch size nobody tried. Column `scav` is nested: what is believed "
        "before any run is estimated without the tested benchmark (`benchmarks/calibrate_samples.py`); `shipped` has "
        "the constants of the product, estimated from all reference points. Curves from other worlds (submitters' runs "
        "of benchmarks without reference points, jobs of Sia, Scavenger's two clusters) and drawn ones were never part "
        "of that. Some sixty settings of the model's form were compared by hand with these tables in view; with one "
        "size left out, all but one stayed within 0.3 points of each other on the reference points. From two "
        "batch sizes the median goes half the way to the plain hyperbola. The half was not estimated, but "
        "seen beside ten other shares and one other way to stay inside the interval: from 30 % on all came out near "
        "the hyperbola or below it on the reference points, while a share chosen on the other benchmarks erred by "
        "18.6 %. It fails with two small "
        "batches and nothing else, most on ncf (Sia), where samples rise at first and then no more, and more so than "
        "without the hyperbola's half (492 instead of 287 %): look at the interval, and run a third size.",
        "samples_to_target",
    ),
    Section(
        "What probing buys",
        "`scav probe --on aws` measures its plan, `scav tune --on aws` what is worth it; `scav plan` chooses.",
        "Cost or time of the chosen configuration over that of the best one. A probing cluster answers with what was "
        "recorded at the batch sizes that the command asks for, or the nearest; the choice is among the recorded "
        "configurations of whole nodes, at the job's confidence. The command spends at most $25 unless `--max-cost` "
        "says otherwise; the other rows have its whole plan measured. `scav tune` decides itself what to measure for "
        "each objective, here without a limit; of its rule nothing was chosen on this table but that what larger "
        "clusters would take is learned on the largest that may be probed, after a first run that did not, and that "
        "recorded batches may be chosen which no split of a step makes, a fault that ResNet-18's row showed. Forest, "
        "Pollux, Ernest and Scavenger get the "
        "same probes and take what they predict best; CherryPick and random take as many of their own and the best of "
        "them. Where the best is a part of a node, nobody here can choose it, since scav does not rent that: the last "
        "row of each objective is what whole nodes allow, and `over whole nodes` is the regret over that: how well the "
        "choice was made among what can be chosen. `scav plan` takes the best at the upper end of its interval; "
        "beside it, from the same probes, the best by its median and the best that was measured, which is far off "
        "where the probes were few. The last table compares the first two rules, with the prior from the other "
        "applications and with several limits for the probes. For cost the median does better in the mean, but not at "
        "each limit, and by little more than one standard error over four applications. For time they do not decide: "
        "single applications make the means. Few probes are not enough for the fastest cluster: what `scav plan` then "
        "takes for it may be several times slower than the best, so `scav tune` is the command for that.",
        "regret",
        arguments=("--leave-out-app",),
    ),
    Section(
        "Time to train",
        "The samples are those of `scav plan`; the step time is the benchmark's own, since most of these machines are "
        "not in the catalogue.",
        "Minutes of MLPerf submissions on accelerator counts that were held out: scav's curve of samples to the "
        "target, with a plain scaling of the step time.",
        "time_to_train",
    ),
    Section(
        "A published table",
        "The samples are those of `scav plan`; the step time is the benchmark's own, since these nodes have no GPU.",
        "Total time of 16 configurations from its four corners (Scavenger, arXiv 2303.06659): scav's curve of samples, "
        "with a step time linear in the batch.",
        "scavenger_table",
        needs_data=False,
    ),
    Section(
        "Before any measurement",
        "`scav predict` and `scav plan` without measurements.",
        "Throughput from data sheets alone.",
        "cold_start",
    ),
    Section(
        "What other jobs are worth",
        "`scav predict` and `scav plan` with `--history`.",
        "Errors of the step on machines that other jobs measured, with none, one or three probes of the job "
        "itself, alone and with the other jobs, each job left out in turn. Data parallel: seven jobs from two "
        "sources (Sia's four, and ResNet-50 and two BERTs of Lambda's benchmark), on the instance types that each"
        " was measured on. How much jobs share is averaged over four shares; over which sizes they are alike was set "
        "with these scores in view, after 16 pairs of both: every longer reach than half a doubling erred more than no "
        "history where nothing was probed (30.2 to 33.2 %), every share with this reach or less did not (29.0 to "
        "29.8); by how likely each made the rows, or equally, was seen there, too. Sharded: a table's models stand for "
        "the jobs of one user; that they share half of what is unknown was chosen among four shares with these scores "
        "in view. Sources differ more than one user's jobs will: cold, plain jobs gain little on average but an "
        "interval that says more (log score).",
        "reuse",
    ),
    Section(
        "Feeding the GPUs",
        "`scav predict` and `scav plan` of a job with `input: jpeg`, without measurements; the rows that know CPU "
        "seconds do what measurements or `cpu_seconds_per_sample` add, but for hyperthreads, which the table does not "
        "load.",
        "Seconds between decoded images, on processors that were left out of every constant: eleven decoders in "
        "PyTorch's DataLoader (imread_benchmark, arXiv 2605.08731) and FFCV, whose own loader is three times as fast "
        "and is missed when left out. A processor is one draw, so there are five, and intervals are the spread "
        "between them; the two Neoverses, slower and faster than the rest, are why coverage is below 90 % where CPU "
        "seconds are known. "
        "Three settings were tried: the plain spread (83 and 77 % inside where CPU seconds are known), one "
        "widened by Student's t for few processors everywhere, and one where CPU seconds are known only, which "
        "is used. That was decided with these scores in view: the table's own coverage is 98 % either way, and "
        "its interval would only be wider. So a sixth processor may fare worse.",
        "feeding",
    ),
    Section(
        "Step time of sharded training",
        "`scav predict` and `scav plan` of a job with `workload.transformer` have this model; what a job cannot say "
        "(other GPUs, kernels, interleaved stages) is the tables'.",
        "Seconds per step of language models that six projects published, spread by tensor, pipeline, data and context "
        "parallelism, ZeRO and FSDP. Cold: nothing of the project is known, the prior comes from the other five; the "
        "other splits fit a part of the project, with the same prior. MFU: one share of the peak for all. Folds of "
        "vTrain's grid are interpolation; the splits that leave groups out say what to expect. Megatron repeats "
        "configurations from release to release, so these are folded together. Mixtures of experts are left out. Each "
        "kind of GPU has parameters of its own, for which the others speak. The form was found in a trial on the same "
        "tables, and ten settings of its prior and of what the tables leave unsaid were compared with the cold scores "
        "in view, the doubt outside the rows with one coverage (wider); so a seventh project may fare worse. Seven "
        "more terms were judged without them, by families left out of what the prior of another had left: three are "
        "in (activations that tensor parallelism leaves whole, kernels of the ends, gradients of activations beside "
        "frozen weights), four are not (the same with a factor of its own, flash attention's longer backward pass, "
        "casts to fp8, rings whose latency grows with the nodes). Worst: nanotron on 512 GPUs, whose steps take two to "
        "three times what any data sheet says.",
        "sharded_step_time",
    ),
    Section(
        "Choosing a strategy",
        "`scav plan` of a job with `workload.transformer`.",
        "Seconds of the chosen way to spread a model over its GPUs, over those of the best that was measured, on the "
        "tables that measured several. The prior comes from the other projects. Probes that scav chose: five times, "
        "what it predicts to be fastest is measured, and the fastest of these is taken; for all batches: five for each "
        "model and number of GPUs, each of what it is least sure of among what it would choose, and then what is "
        "predicted to be fastest. Rules of thumb, and one of the strategies at random, beside it.",
        "strategy_regret",
    ),
    Section(
        "Memory of sharded training",
        "`scav memory` of a job with `workload.transformer`.",
        "Peaks of training language models that four projects published, in percent of them, and what was refused of "
        "what ran (a chance to fit below 50 %) or called fitting of what ran out of memory (90 % or more). Nested: "
        "the medians and spreads on top of the formulas come from the other tables, which is what to expect of a "
        "framework that was never seen; shipped: from all four. The formulas' own constants were chosen among twelve "
        "settings with these tables in view, so both flatter: that litgpt's FSDP of 2023 keeps whole gradients of "
        "flat parameters while it accumulates, and takes eight bytes a logit, was looked for where its rows were "
        "off, and is so in its source and Lightning's. Of ms-swift's texts of varying length the other tables cannot "
        "tell: nested, its peaks are taken for a tenth less. llm-foundry publishes no peaks, only micro-batches that "
        "ran. One row of torchtune (LoRA of 8B on an A6000) has the same columns as one on a 4090 and nearly twice "
        "its peak, so its settings are not all published; it counts here. Rows with settings that the formulas do "
        "not know (GPTQ, other adapters, offloading, 8-bit optimizers) are left out, three of torchtune's only after "
        "their errors were seen; the same configuration counts once.",
        "memory",
    ),
    Section(
        "Traced memory",
        "`scav memory --trace` of a job with `workload.transformer`.",
        "Peaks that litgpt and torchtune published beside a trace of the same training, run as users run it: "
        "`traced_model.py`, a script in plain PyTorch as the sources of the two projects (and of Lightning, "
        "bitsandbytes and torchao) have it. No constant was fitted, and two facts were looked up only after rows had "
        "been off: that Fabric hands logits over in fp32, and that torchtune's loss, compiled, keeps no softmax. "
        "litgpt's norm is the one without a cast to fp32; its source had one later, with which Llama's rows would be "
        "3 to 5 % higher. Compiled rows (torchtune's but the one with packed data alone) are traced without "
        "compiling: what is fused in the block that is computed again is held here. The LoRA row of an A6000 "
        "contradicts the one of a 4090, see above; without it torchtune's error is 4.5 %. The 0.06 that a trace's "
        "interval has is wider than what the two projects differ by (0.04), which are two.",
        "traced_memory",
    ),
    Section(
        "Published runs of language models",
        "`scav predict --strategy` of a job with `workload.transformer`, before any probe.",
        "Seconds of a step as published and as predicted. GPT-2 (karpathy/nanoGPT, README.md) and MPT-7B (MosaicML's "
        "announcement of May 2023) are whole runs, whose days and tokens were published, and in no prior; how MPT-7B "
        "was split is not, so it is split as scav would. The others are from tables that the prior was estimated "
        "from with others: that they are inside shows nothing, that one is not shows what is missed. torchtitan's "
        "A100 runs do not state their network, so each stands here twice: with that of AWS's p4de, and with that of "
        "NVIDIA's DGX A100, four times as fast, as clusters of such GPUs usually have. With the latter all are "
        "inside. Llama 2 70B with selective recomputation cannot have run on p4de: its weights and gradients alone "
        "would take 10.9 of its 11.5 seconds there, at the network's full rate. GPT-2's four days hold evaluations "
        "and checkpoints, too.",
        "published_runs",
    ),
    *(Section(*row) for row in SECTIONS_OF_RUNS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("page", type=Path)
    parser.add_argument("--only", nargs="+", choices=[section.script for section in SECTIONS], metavar="SCRIPT")
    arguments = parser.parse_args()
    kept = sections_of(arguments.page.read_text(encoding="utf-8")) if arguments.only else {}
    parts = [HEAD]
    for section in SECTIONS:
        if arguments.only and section.script not in arguments.only:
            parts.append(kept[section.title])
        else:
            print(f"{section.script} …", file=sys.stderr, flush=True)
            parts.append(written(section, arguments.data, arguments.page.with_suffix(".svg")))
    arguments.page.write_text("\n".join(parts), encoding="utf-8")


def sections_of(page: str) -> dict[str, str]:
    """By title, as `written` writes them."""
    texts = page.split("\n## ")[1:]
    return {text.partition("\n")[0]: f"## {text.rstrip()}\n" for text in texts}


def written(section: Section, data: Path, picture: Path) -> str:
    printed = run(section, data)
    if "--json" in section.arguments:
        rows = json.loads(printed)["rows"]
        printed = f"{table(rows)}\n\n{worst(rows)}"
        picture.write_text(figure(rows), encoding="utf-8")
    options = ("--data", "DIR") if section.needs_data else ()
    shown = (word for word in section.arguments if word != "--json")
    command = " ".join(("python", f"benchmarks/{section.script}.py", *options, *shown))
    head = f"## {section.title}\n\nCommand: {section.command}\n\n{section.text}"
    return f"{head}\n\n{lowered(printed)}\n\n`{command}`\n"


def run(section: Section, data: Path) -> str:
    command = [sys.executable, str(HERE / f"{section.script}.py"), *section.arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # more only slow small matrices
    if section.needs_data:
        command += ["--data", str(data)]
    return subprocess.run(command, check=True, env=one_thread, stdout=subprocess.PIPE, text=True).stdout.strip()


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each split, a column for each model: error, and coverage in brackets."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["split"], row["model"]): f"{row['mape']:.1f} ({row['coverage90']:.0f})" for row in rows}
    lines = [["error % (inside 90 %)", *models], ["---"] * (len(models) + 1)]
    lines += [
        [split, *(cells.get((split, model), "") for model in models)]
        for split in dict.fromkeys(row["split"] for row in rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def worst(rows: list[dict[str, Any]]) -> str:
    """Of scav, split by split: the group whose errors have the largest median."""
    named = (
        f"{row['split']} {row['worst_group']} {row['worst_median']:.0f} %" for row in rows if row["model"] == "scav"
    )
    return f"Worst group of scav, by the median of its errors: {', '.join(named)}."


def lowered(markdown: str) -> str:
    """The benchmark's own headings, below the section's."""
    return "\n".join(f"#{line}" if line.startswith("## ") else line for line in markdown.splitlines())


def figure(rows: list[dict[str, Any]]) -> str:
    import vl_convert

    chosen = [row for row in rows if row["model"] in SHOWN and row["mape"] is not None]
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 640,
        "height": 240,
        "data": {"values": chosen},
        "mark": "bar",
        "encoding": {
            "x": {"field": "split", "type": "nominal", "title": "split", "axis": {"labelAngle": 0}},
            "xOffset": {"field": "model", "sort": list(SHOWN)},
            "y": {
                "field": "mape",
                "type": "quantitative",
                "title": "error, %",
                "scale": {"type": "symlog", "constant": 10},
            },
            "color": {"field": "model", "sort": list(SHOWN), "title": None},
        },
    }
    svg: str = vl_convert.vegalite_to_svg(chart)
    return svg


if __name__ == "__main__":
    main()
