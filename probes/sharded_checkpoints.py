"""Checkpoints of sharded models: every process writes its part, in the background, and any number of them reads it.

    checkpoints = ShardedCheckpoints(model, optimizer)
    for step in range(checkpoints.load(), steps):
        ...
        checkpoints.after_step(step + 1)
    checkpoints.finish()

With torch.distributed.checkpoint, in a folder that all nodes see. A checkpoint appears under its name only when all of
it is on the disk; the one before is removed after that, so that one is whole at any moment. SIGTERM is answered as by
`probes.checkpoints`: the step is finished, all save, every process exits with 13.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from probes.checkpoints import STOPPED_IN_ORDER
from probes.cluster import any_of, this_place
from probes.ending import leave

_NAME = re.compile(r"step-(\d+)")
_UNFINISHED = ".unfinished"


class ShardedCheckpoints:
    """In SCAV_CHECKPOINT_DIR, every SCAV_CHECKPOINT_INTERVAL_SECONDS, unless told otherwise."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        folder: Path | None = None,
        interval_seconds: float | None = None,
    ) -> None:
        self.model, self.optimizer, self.place = model, optimizer, this_place()
        self.folder = folder or Path(os.environ.get("SCAV_CHECKPOINT_DIR", "."))
        default = float(os.environ.get("SCAV_CHECKPOINT_INTERVAL_SECONDS", "600"))
        self.interval_seconds = default if interval_seconds is None else interval_seconds
        # Of its own, because it talks while the training does; and of CPUs, where the copies are.
        self._group = dist.new_group(backend="gloo") if self.place.world_size > 1 else None
        self._saving: tuple[int, Future[Any]] | None = None
        self._saved_at = time.monotonic()
        self._told_to_stop = False
        signal.signal(signal.SIGTERM, self._take_note)

    def load(self) -> int:
        """The newest whole checkpoint into model and optimizer; the step to go on with, 0 at the very beginning."""
        if self.place.rank == 0:  # what a killed run did not finish
            for left in self.folder.glob(f"step-*{_UNFINISHED}"):
                shutil.rmtree(left)
        newest = max(self._steps(), default=0)
        if not newest:
            return 0
        state = self._state()
        load(state, checkpoint_id=self._path(newest), process_group=self._group, no_dist=self._group is None)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        return newest

    def after_step(self, step: int) -> None:
        """Begins to save when it is time, or saves and leaves when the node must go."""
        due = self._saving is None and time.monotonic() - self._saved_at >= self.interval_seconds
        written = self._saving is not None and self._saving[1].done()
        stop, due, unwritten = any_of([self._told_to_stop, due, not written], self.place)
        if stop or not unwritten:
            self._complete()
        if stop or due:
            self._begin(step)
        if stop:
            self.finish()
            leave(STOPPED_IN_ORDER)
            sys.exit(STOPPED_IN_ORDER)

    def finish(self) -> None:
        """Waits until what is being saved is whole."""
        self._complete()

    def _begin(self, step: int) -> None:
        """What is saved is copied now; the training goes on while the copies are written."""
        if step in self._steps():
            return
        path = self._path(step).with_suffix(_UNFINISHED)
        if self.place.rank == 0:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        self._wait_for_all()
        writer = FileSystemWriter(path, sync_files=True)
        saving = async_save(
            self._state(), storage_writer=writer, process_group=self._group, no_dist=self._group is None
        )
        assert isinstance(saving, Future)  # noqa: S101 - a response only where a stager is given
        self._saving = step, saving

    def _complete(self) -> None:
        if self._saving is None:
            return
        (step, saving), self._saving = self._saving, None
        saving.result()
        self._wait_for_all()
        if self.place.rank == 0:
            path, before = self._path(step), self._steps()
            path.with_suffix(_UNFINISHED).rename(path)
            _flush(self.folder)
            for old in before:
                shutil.rmtree(self._path(old))
        self._wait_for_all()
        self._saved_at = time.monotonic()

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _steps(self) -> list[int]:
        names = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return [int(found[1]) for found in names if found]

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def _wait_for_all(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)

    def _take_note(self, _number: int, _frame: object) -> None:
        self._told_to_stop = True


def _flush(folder: Path) -> None:
    """A rename lasts when its folder is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
