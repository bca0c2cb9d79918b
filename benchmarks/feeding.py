"""How well feeding is predicted: images decoded a second, on processors that were left out of the constants.

Reads `llm-tables/input_pipeline_images_per_s.csv` below --data: eleven decoders in PyTorch's DataLoader on four
processors, and FFCV on a fifth. Constants are medians over decoders and processors, their intervals the spread between
processors (each one draw) and between decoders; where CPU seconds are known, widened for a processor beyond so few. For
each processor they are estimated from the others alone. Prints
Markdown tables, or JSON with --json; last what all processors together say, which planner/models/feeding.py has.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from planner.columns import Floats, Prediction
from planner.models import feeding

WORKERS = (2, 4, 8)
RAW_BYTES = {"RAW 512 px": 3 * 512**2, "RAW 256 px": 3 * 256**2}
FULL_PIPELINE = "JPEG q90 512 px, decode + random resized crop 224 + flip"


class Row(NamedTuple):
    """One decoder on one processor: images a second."""

    cpu: str
    decoder: str
    vcpus: int
    alone: float | None  # one process
    loader: Mapping[int, float]  # by workers

    @property
    def best(self) -> float:
        return max(self.loader.values())


class Score(NamedTuple):
    known: str
    cpu: str
    rows: int
    error: float
    inside: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = read(arguments.data / "llm-tables" / "input_pipeline_images_per_s.csv")
    rows = decoding(table)
    scores = [*by_table(rows), *by_processor_seconds(rows, here=True), *by_processor_seconds(rows, here=False)]
    scores.append(by_throughput(table))
    if arguments.json:
        print(json.dumps({"scores": [score._asdict() for score in scores], "constants": constants(rows)}))
        return
    lines = ["| what is known | processor left out | rows | error % | inside 90 % |", "|---|---|--:|--:|--:|"]
    lines += [
        f"| {s.known} | {s.cpu} | {s.rows} | {s.error:.0f} | {s.inside:.0f} |" for s in [*scores, *totals(scores)]
    ]
    lines += ["", "| constant | all processors | scav |", "|---|--:|--:|"]
    lines += [f"| {name} | {found:.3g} | {used:.3g} |" for name, (found, used) in constants(rows).items()]
    print("\n".join(lines))


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def decoding(table: list[dict[str, str]]) -> list[Row]:
    names = dict.fromkeys((row["cpu"], row["library"]) for row in table)
    rows = [_row(cpu, decoder, [row for row in table if (row["cpu"], row["library"]) == (cpu, decoder)])
            for cpu, decoder in names]  # fmt: skip
    return [row for row in rows if row.loader]  # some were timed in a single process only


def _row(cpu: str, decoder: str, table: list[dict[str, str]]) -> Row:
    speed = {(row["mode"], int(row["workers"])): float(row["images_per_s"]) for row in table
             if decoder != "FFCV" or row["operation"] == FULL_PIPELINE}  # fmt: skip
    loader = {workers: rate for (mode, workers), rate in speed.items() if mode != "single process default"}
    loader = {workers: rate for workers, rate in loader.items() if workers > 1}
    return Row(cpu, decoder, int(table[0]["vcpus"]), speed.get(("single process 1t", 1)), loader)


def pooled(rows: list[Row], value: Callable[[Row], float], *, further: bool = True) -> feeding.Doubtful:
    """The median of logarithms, and the spread of processors about it beside that of decoders on one processor.

    `further`: widened to where a further processor is expected. The table's own figures are not widened: they cover
    98 % as they are.
    """
    logs = {cpu: np.log([value(row) for row in rows if row.cpu == cpu]) for cpu in dict.fromkeys(r.cpu for r in rows)}
    middle = float(np.median(np.concatenate(list(logs.values()))))
    between = sum((each.mean() - middle) ** 2 for each in logs.values()) / (len(logs) - 1)
    within = np.mean(np.concatenate([(each - each.mean()) ** 2 for each in logs.values()]))
    wider = of_a_further_one(len(logs)) if further else 1.0
    return feeding.Doubtful(float(np.exp(middle)), float(np.sqrt(wider**2 * between + within)))


def of_a_further_one(processors: int) -> float:
    """How many times the spread among so few processors a further one is expected in.

    The middle is estimated from them, too, and so few of them often agree by chance: Student's distribution says how
    often. It is written as the normal one with the same 90 % interval, which is what the models have.
    """
    wider = stats.t.ppf(0.95, processors - 1) / stats.norm.ppf(0.95)
    return float(wider * np.sqrt(1 + 1 / processors))


def processor_log_sd(rows: list[Row]) -> float:
    """How much processors differ at one decoder, alone."""
    mean = {
        name: np.mean([np.log(row.alone or np.nan) for row in rows if row.decoder == name]) for name in decoders(rows)
    }
    return pooled(rows, lambda row: row.alone / float(np.exp(mean[row.decoder]))).log_sd  # type: ignore[operator]


def decoders(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.decoder for row in rows))


def by_table(rows: list[Row]) -> Iterator[Score]:
    """vCPU seconds of an image, of a machine of which nothing is known."""
    for cpu, own, others in left_out(rows):
        each = pooled(others, lambda row: row.vcpus / row.best, further=False)
        measured = np.array([row.vcpus / row.best for row in own])
        yield score("nothing", cpu, measured, predicted(np.full(len(own), each.median), each.log_sd))


def by_processor_seconds(rows: list[Row], *, here: bool) -> Iterator[Score]:
    """Seconds between images from 2, 4 and 8 workers, from what one process takes alone, there or on the others."""
    timed = [row for row in rows if row.alone is not None]
    for cpu, own, others in left_out(timed):
        speed_up = pooled(others, lambda row: row.loader[2] / (2 * row.alone))  # type: ignore[operator]
        handover = pooled(others, lambda row: 1 / row.best)
        spread = speed_up.log_sd if here else float(np.hypot(speed_up.log_sd, processor_log_sd(others)))
        alone = np.array([1 / row.alone if here else _elsewhere(row, others) for row in own])  # type: ignore[operator]
        measured = np.array([1 / row.loader[workers] for workers in WORKERS for row in own])
        processors = np.concatenate([alone / (workers * speed_up.median) for workers in WORKERS])
        handed_over = predicted(np.full(len(measured), handover.median), handover.log_sd)
        known = f"CPU seconds of it {'there' if here else 'on the others'}"
        yield score(known, cpu, measured, predicted(processors, spread).longer_of(handed_over))


def _elsewhere(row: Row, others: list[Row]) -> float:
    return float(np.exp(-np.mean([np.log(each.alone) for each in others if each.decoder == row.decoder])))  # type: ignore[arg-type]


def by_throughput(table: list[dict[str, str]]) -> Score:
    """Raw images of two sizes from the same volume, each from the other's bytes a second."""
    read = [row for row in table if row["dataset"] == "ImageNet from EBS" and row["operation"] in RAW_BYTES]
    size = np.array([RAW_BYTES[row["operation"]] for row in read])
    rate = np.array([float(row["images_per_s"]) for row in read])
    found = predicted(size / (rate * size)[::-1], feeding.VOLUME_LOG_SD)
    return score("throughput of the volume", read[0]["cpu"], 1 / rate, found)


def left_out(rows: list[Row]) -> Iterator[tuple[str, list[Row], list[Row]]]:
    for cpu in dict.fromkeys(row.cpu for row in rows):
        yield cpu, [row for row in rows if row.cpu == cpu], [row for row in rows if row.cpu != cpu]


def predicted(median: Floats, log_sd: float) -> Prediction:
    return Prediction.log_normal(median, log_sd, np.zeros(len(median), dtype=bool))


def score(known: str, cpu: str, measured: Floats, found: Prediction) -> Score:
    error = 100 * float(np.mean(np.abs(found.p50 / measured - 1)))
    inside = 100 * float(np.mean((found.p05 <= measured) & (measured <= found.p95)))
    return Score(known, cpu, len(measured), error, inside)


def totals(scores: list[Score]) -> Iterator[Score]:
    kinds = [score.known for score in scores]
    for kind in [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]:
        own = [score for score in scores if score.known == kind]
        rows = sum(score.rows for score in own)
        error = sum(score.rows * score.error for score in own) / rows
        yield Score(f"**{kind}**", "each", rows, error, sum(score.rows * score.inside for score in own) / rows)


def constants(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """As estimated from all processors, beside what scav has."""
    timed = [row for row in rows if row.alone is not None]
    found = {
        "images a second and vCPU": (
            pooled(rows, lambda row: row.best / row.vcpus, further=False),
            feeding.JPEG_VCPU_SECONDS,
        ),
        "images a second of a loader": (pooled(timed, lambda row: row.best), feeding.HANDOVER_SECONDS),
        "yield of a worker": (pooled(timed, lambda row: row.loader[2] / (2 * row.alone)), feeding.WORKER_YIELD),  # type: ignore[operator]
    }
    table: dict[str, tuple[float, float]] = {}
    for name, (all_of_them, used) in found.items():
        table[name] = (all_of_them.median, used.median if "yield" in name else 1 / used.median)
        table[f"log sd of {name}"] = (all_of_them.log_sd, used.log_sd)
    return {**table, "log sd between processors": (processor_log_sd(timed), feeding.PROCESSOR_LOG_SD)}


if __name__ == "__main__":
    main()
