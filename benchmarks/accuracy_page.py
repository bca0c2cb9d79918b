"""Runs every accuracy benchmark and writes what they print to a page: `accuracy_page.py --data DIR docs/accuracy.md`.

A figure of the step-time errors is drawn beside it, `accuracy.svg`. Nothing on the page is written by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SHOWN = ("scav", "forest", "physical", "pollux")  # four bars a split can still be told apart

HEAD = """\
<!-- Written by benchmarks/accuracy_page.py (make bench DATA=dir); edit that instead -->

# How accurate scav is

Errors on public measurements that nobody here took, each beside its baselines from the same run. All are mean absolute
percentage errors, and coverage is the share of held-out measurements inside the 90 % interval. What each model is:
[models.md](models.md). Every table says which command does what it measures; what no command does is not here.

The constants of the models were chosen with these applications and benchmarks in view. "App left out" estimates what is
pooled over applications without the tested one, and is the better guide for a new one.
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
        "only.\n\n![Errors by split](accuracy.svg)",
        "step_time",
        arguments=("--leave-out-app", "--json"),
    ),
    Section(
        "Samples to the target",
        "`scav predict` and `scav plan`, from the runs under `workload.convergence` in `scav.yaml`.",
        "How much data reaches the target at a batch size nobody tried: MLPerf reference runs and submissions.",
        "samples_to_target",
    ),
    Section(
        "What probing buys",
        "`scav probe --on aws` measures its plan, `scav plan` chooses.",
        "Cost or time of the chosen configuration over that of the best one. A probing cluster answers with what was "
        "recorded at the batch sizes that the command asks for, or the nearest; the choice is among the recorded "
        "configurations of whole nodes, at the job's confidence. The command spends at most $25 unless `--max-cost` "
        "says otherwise; the other rows have its whole plan measured. Forest, Pollux, Ernest and Scavenger get the "
        "same probes and take what they predict best; CherryPick and random take as many of their own and the best of "
        "them. Where the best is a part of a node, nobody here can choose it, since scav does not rent that: the last "
        "row of each objective is what whole nodes allow.",
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
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    parts = [HEAD]
    for section in SECTIONS:
        print(f"{section.script} …", file=sys.stderr, flush=True)
        printed = run(section, arguments.data)
        if "--json" in section.arguments:
            rows = json.loads(printed)["rows"]
            printed = table(rows)
            arguments.page.with_suffix(".svg").write_text(figure(rows), encoding="utf-8")
        options = ("--data", "DIR") if section.needs_data else ()
        shown = (word for word in section.arguments if word != "--json")
        command = " ".join(("python", f"benchmarks/{section.script}.py", *options, *shown))
        head = f"## {section.title}\n\nCommand: {section.command}\n\n{section.text}"
        parts.append(f"{head}\n\n{lowered(printed)}\n\n`{command}`\n")
    arguments.page.write_text("\n".join(parts), encoding="utf-8")


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
