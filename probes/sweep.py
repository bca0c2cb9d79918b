"""`torchrun … -m probes.sweep --batches 16,64,256 -- train.py --args`: one local batch size after the other.

Each size runs in fresh processes, one per rank of torchrun's; a size that fails does not keep the others from being
measured. Where one does not fit the memory, the largest that does is looked for. The first rank appends a JSON object
per size to SCAV_RESULTS_DIR/probes.jsonl as soon as it is known: what `probes.run` wrote, or `outcome` and `reason`.

The ranks meet in torchrun's own store. The first says which size is next and on which port its processes meet; each
answers with what became of its own process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from probes.batch_search import next_batch, smallest_too_large
from probes.cluster import Place, this_place
from probes.placeholders import batch_values, fill, hold_batch, hold_strategy, strategy_values
from probes.settings import OTHER_BATCH, Settings
from probes.strategy import Strategy
from probes.trial import MEASURED, OUT_OF_MEMORY, Report, run_trial, together

RESULTS_FILE = "probes.jsonl"
_SLACK_SECONDS = 120.0  # until a process that should have answered is taken for lost


def main(arguments: list[str]) -> int:
    """0 if anything was measured or found not to fit, on every rank alike."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through `finally`, which ends the try
    place = this_place()
    store = _meet(place, options.seconds_per_batch + _SLACK_SECONDS)
    results = Results(Path(os.environ.get("SCAV_RESULTS_DIR", ".")) / RESULTS_FILE, place, options.batches)
    with _folder_of_node(store, place) as folder:
        for number in range(sys.maxsize):
            if place.rank == 0:
                store.set(f"order/{number}", json.dumps(results.next_order()))
            order = json.loads(store.get(f"order/{number}"))
            if order["batch"] is None:
                break
            report = _try(options, order, place, PrefixStore(f"try/{number}", store), folder / str(number))
            store.set(f"report/{number}/{place.rank}", json.dumps(asdict(report)))
            if place.rank == 0:
                results.add(order["batch"], _all_reports(store, number, place.world_size))
        _leave_together(store, place)
    return int(order["code"])


@dataclass(slots=True)
class Results:
    """On the first rank: what was found so far, in memory and on disk, and what to do next."""

    file: Path
    place: Place
    asked: list[int]
    records: list[dict[str, Any]] = field(default_factory=list)
    tried: dict[int, bool | None] = field(default_factory=dict)

    def next_order(self) -> dict[str, Any]:
        batch = next_batch(self.tried, self.asked)
        refused = any(record["outcome"] == OTHER_BATCH for record in self.records)
        if batch is not None and not refused:  # a script that ignores one batch ignores them all
            return {"batch": batch, "port": _free_port()}
        too_large = smallest_too_large(self.tried)
        for skipped in sorted(set(self.asked) - self.tried.keys()) if too_large is not None else ():
            self.add(skipped, Report(OUT_OF_MEMORY, f"local batch {too_large} does not fit already"))
        known = any(record["outcome"] in (MEASURED, OUT_OF_MEMORY) for record in self.records)
        return {"batch": None, "code": 0 if known else 1}

    def add(self, batch: int, report: Report) -> None:
        self.tried[batch] = {MEASURED: True, OUT_OF_MEMORY: False}.get(report.outcome)
        self.records.append(
            report.record
            if report.record is not None and report.outcome == MEASURED
            else {
                "outcome": report.outcome,
                "reason": report.reason,
                "nodes": self.place.nodes,
                "gpus_per_node": self.place.local_world_size,
                "gpu_batch": batch,
                "accumulation_steps": 1,
            }
        )
        self._write()
        print(f"scav: local batch {batch}: {report.outcome} {report.reason}".rstrip(), flush=True)

    def _write(self) -> None:
        """As a whole, so that whoever copies it meanwhile never gets half a line."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_name(f".{self.file.name}.tmp")
        temporary.write_text("".join(json.dumps(record) + "\n" for record in self.records), encoding="utf-8")
        temporary.replace(self.file)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="probes.sweep", description="Measure a training script at several batches.")
    parser.add_argument("--batches", type=_sizes, required=True, help="local batch sizes, as in 16,64,256")
    parser.add_argument("--reference-batch", type=_positive, required=True, help="where SCAV_LR_SCALE is 1")
    parser.add_argument("--seconds-per-batch", type=float, default=600.0, help="end a size that takes longer")
    parser.add_argument("--windows", type=_positive, default=8)
    parser.add_argument("--window-steps", type=_positive, default=20)
    parser.add_argument("--no-noise", action="store_true", help="leave the gradient noise out")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the training script and its arguments")
    options = parser.parse_args(arguments)
    options.script = options.script[1:] if options.script[:1] == ["--"] else options.script
    if not options.script:
        parser.error("no script")
    now = time.time()
    options.seconds_before = now - float(os.environ.get("SCAV_NODE_BOOTED", now))
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _sizes(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _meet(place: Place, timeout_seconds: float) -> Store:
    """Where torchrun says, whether its launcher or the first rank keeps the store."""
    if place.world_size == 1:
        return HashStore()
    timeout = timedelta(seconds=timeout_seconds)
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    return PrefixStore("scav-sweep", store)


@contextlib.contextmanager
def _folder_of_node(store: Store, place: Place) -> Iterator[Path]:
    """One for all processes of a node: a script may let the first of them write what the others read."""
    key = f"folder/{os.environ.get('GROUP_RANK', '0')}"
    own = tempfile.mkdtemp(prefix="scav-sweep-") if place.local_rank == 0 else None
    try:
        if own is not None:
            store.set(key, own)
        yield Path(store.get(key).decode())
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def _try(options: argparse.Namespace, order: dict[str, Any], place: Place, store: Store, folder: Path) -> Report:
    folder.mkdir(exist_ok=True)
    settings = Settings(
        gpu_batch=order["batch"],
        accumulation_steps=1,
        checkpoint_folder=folder / "checkpoints",
        output=folder / f"probe-{place.local_rank}.json",
        windows=options.windows,
        window_steps=options.window_steps,
        measure_noise=not options.no_noise,
        batch_is_in_command=hold_batch(options.script),
        noise_state=folder.parent / "noise-state.pt",
        strategy=Strategy.from_environment(),  # of the node, so that all sizes are tried with it
        strategy_is_in_command=hold_strategy(options.script),
    )
    environment = {
        "MASTER_ADDR": "127.0.0.1",  # without torchrun there is nobody else
        **os.environ,
        **settings.to_environment(workers=place.world_size, reference_batch=options.reference_batch),
        # A real run also waits for the machine and its image, which every size after the first found there.
        "SCAV_PROBE_STARTED": repr(time.time() - options.seconds_before),
        # Fresh processes meet in a store of their own: torchrun's still knows the addresses of those before.
        "MASTER_PORT": str(order["port"]),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    strategy = settings.strategy or Strategy()
    values = batch_values(
        gpu_batch=settings.gpu_batch,
        accumulation_steps=settings.accumulation_steps,
        workers=place.world_size // strategy.model_processes,
        reference_batch=options.reference_batch,
    ) | strategy_values(strategy)
    command = [sys.executable, "-m", "probes.run", *fill(options.script, values)]
    return run_trial(command, environment, settings.output, store, options.seconds_per_batch)


def _all_reports(store: Store, number: int, world_size: int) -> Report:
    answers = [json.loads(store.get(f"report/{number}/{rank}")) for rank in range(world_size)]
    return together([Report(**answer) for answer in answers])


def _leave_together(store: Store, place: Place) -> None:
    """The first rank may be keeping the store: it waits until the others have read what they need."""
    store.set(f"left/{place.rank}", "")
    if place.rank == 0:
        store.wait([f"left/{rank}" for rank in range(place.world_size)])


def _free_port() -> int:
    """On the first rank's machine, where the processes meet."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
