"""What a training holds of a GPU, as text for a terminal, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from planner.models import CONTEXT_GIB, GIB
from planner.plan.memory_report import FlatRow, MemoryReport
from planner.plan.review.lines import table
from planner.units import format_count, format_probability

_WIDTH = 80
_PARTS = (
    ("weights", "weights"),
    ("gathered", "gathered weights"),
    ("gradients", "gradients"),
    ("optimizer", "optimizer"),
    ("activations", "activations"),
    ("logits", "logits and loss"),
    ("load", "loading"),
)


def memory_text(row: MemoryReport) -> str:
    """Of one instance type: what takes how much, what limits, what would make it fit."""
    strategy = row.strategy
    batch = f"micro-batch {strategy.micro_batch} x {strategy.accumulation}"
    head = [
        f"{row.nodes} x {row.instance_type} ({strategy.gpus} x {row.gpu}, {row.memory_gib:.0f} GiB each)",
        *_wrapped(f"{format_count(row.parameters)} parameters, {_strategy_words(row, shards=True)}, {batch}"),
    ]
    stage = f", stage {row.peak.stage + 1} of {strategy.pipeline}" if strategy.pipeline > 1 else ""
    total = row.peak.parts.total
    cells = [(f"peak: {row.peak.moment}{stage}", "GiB", "share")]
    for name, words in _PARTS:
        if size := getattr(row.peak.parts, name):
            cells.append((f"  {words}", f"{size / GIB:.1f}", f"{100 * size / row.allocated.p50:.0f} %"))
    beyond = row.allocated.p50 - total
    words = "beyond the formulas" if row.traced is None else "the trace beside them"
    cells.append((f"  {words}", f"{beyond / GIB:.1f}", f"{100 * beyond / row.allocated.p50:.0f} %"))
    low, middle, high = (size / GIB for size in row.allocated)
    cells.append(("allocated", f"{middle:.1f}", ""))
    cells.append(("CUDA context", f"{CONTEXT_GIB:.1f}", ""))
    said = f"90 % interval of allocated: {low:.1f} to {high:.1f} GiB"
    if row.fits:
        reserved = max(row.reserved.p50, row.allocated.p50)  # their factors are of different frameworks
        said += f"; PyTorch reserves about {reserved / GIB:.1f}"
    asked = f"asked for {format_probability(row.confidence)}"
    verdict = f"{'Fits' if row.fits else 'Does not fit'}: probability {format_probability(row.probability)}, {asked}."
    lines = [*head, "", *table(cells, "<>>"), said, *_traced_lines(row), "", verdict, f"Most of it: {_limit(row)}."]
    if not row.fits:
        lines += _ways_lines(row)
    return "\n".join(lines) + "\n"


def _traced_lines(row: MemoryReport) -> list[str]:
    if row.traced is None:
        return []
    factor = f"{row.traced_over_formula:.2f}"
    trained = format_count(row.traced.trained_parameters)
    return _wrapped(
        f"Traced: the script trains {trained} parameters and is fullest in the {row.traced.moment}, {factor} of what "
        f"the formulas say. Plans know it with `memory_factor: {factor}` under workload."
    )


def memory_table(rows: Sequence[MemoryReport]) -> str:
    """One line per GPU model, on its machine with most GPUs."""
    cells = [("GPU", "GiB", "on", "needs GiB", "P(fits)", "")]
    for row in rows:
        machine = f"{row.nodes} x {row.instance_type}"
        chance, answer = format_probability(row.probability), "fits" if row.fits else "does not fit"
        needed = f"{row.allocated.p50 / GIB + CONTEXT_GIB:.1f}"
        cells.append((row.gpu, f"{row.memory_gib:.0f}", machine, needed, chance, answer))
    first = rows[0]
    head = f"{format_count(first.parameters)} parameters, {_strategy_words(first, shards=False)}"
    head += f", micro-batch {first.strategy.micro_batch}; asked for {format_probability(first.confidence)}"
    return "\n".join([*_wrapped(head), "", *table(cells, "<><>><")]) + "\n"


def flat_table(rows: Sequence[FlatRow]) -> str:
    """Of a job without a shape."""
    cells = [("GPU", "GiB", "on", "samples per GPU", "take GiB")]
    for row in rows:
        most = f"{row.largest_batch:,}" if row.largest_batch else "none fits"
        cells.append((row.gpu, f"{row.memory_gib:.0f}", row.instance_type, most, f"{row.needed_gib:.1f}"))
    head = (
        "The whole model on every GPU, and the most samples that fit beside it.",
        "Sharding needs workload.transformer.",
    )
    return "\n".join([*head, "", *table(cells, "<><>>")]) + "\n"


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDTH)


def _strategy_words(row: MemoryReport, *, shards: bool) -> str:
    strategy = row.strategy
    over = shards and strategy.shards > 1
    words = [f"{strategy.sharding} over {strategy.shards}" if over else strategy.sharding]
    if strategy.tensor_parallel > 1:
        words.append(f"tensor {strategy.tensor_parallel}")
    if strategy.pipeline > 1:
        words.append(f"{strategy.pipeline} stages")
    if strategy.recompute != "none":
        words.append(f"{strategy.recompute} recompute")
    words.append("full training" if strategy.training == "full" else f"{strategy.training} rank {strategy.lora_rank}")
    return ", ".join(words)


def _limit(row: MemoryReport) -> str:
    name, words = max(_PARTS, key=lambda part: float(getattr(row.peak.parts, part[0])))
    return f"{words}, {getattr(row.peak.parts, name) / GIB:.1f} GiB at the {row.peak.moment}"


def _ways_lines(row: MemoryReport) -> list[str]:
    if not row.ways:
        return ["No single change makes it fit: try more nodes, --tensor-parallel or --pipeline."]
    cells = [(f"  {way.change}", format_probability(way.probability)) for way in row.ways]
    return ["Would fit with one of:", *table(cells, "<>")]
