"""Availability traces wherever they lie below a folder."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError
from planner.inputs.traces import Trace, parse_trace


def load_traces(data: Path) -> list[Trace]:
    """Every JSON file with a trace in it; what is none, or is broken, is named on stderr and left out."""
    found = []
    for file in sorted([*data.rglob("*.json"), *data.rglob("*.json.gz")]):
        name = file.relative_to(data).as_posix().removesuffix(".gz").removesuffix(".json")
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        document = json.loads(text)
        if not isinstance(document, dict) or "data" not in document:
            continue  # another kind of file that lies beside the traces
        try:
            found.append(parse_trace(name, document))
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
    return found


def cut_off(trace: Trace, hours: float) -> Trace:
    """What was known of it by then."""
    ticks = slice(0, round(hours * 3600 / trace.tick_seconds))
    return replace(trace, counts=trace.counts[ticks], prices=None if trace.prices is None else trace.prices[ticks])
