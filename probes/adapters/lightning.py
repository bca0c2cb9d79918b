"""Lightning: `accumulate_grad_batches` of its Trainer, and the batch of its loaders for training.

Both by a callback. Under a probe every Trainer gets it by itself; it then also has as many devices as there are
processes, writes no checkpoint, logs nothing, hardly validates, and does not stop before the probe.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

from probes.adapters.loaders import give_batch
from probes.adapters.requested_run import RequestedRun, epochs_for, length_of
from probes.cluster import this_place

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def adapt(module: Any, asked: RequestedRun) -> None:
    """`module` is lightning.pytorch.trainer.trainer."""
    make, name = module.Trainer.__init__, module.__name__.removesuffix(".trainer.trainer")

    @functools.wraps(make)
    def made(trainer: Any, **kwargs: Any) -> None:
        make(trainer, **kwargs | ({} if asked.probe_steps is None else _for_probe(kwargs, asked.probe_steps)))
        trainer.callbacks.append(_callback(name, asked))
        if asked.probe_steps is not None and trainer.loggers:
            trainer.loggers = [importlib.import_module(f"{name}.loggers.logger").DummyLogger()]

    module.Trainer.__init__ = made


def callback(asked: RequestedRun | None) -> Any:
    """For `Trainer(callbacks=[…])`, of the library that the script has imported."""
    name = next((name for name in _NAMES if name in sys.modules), _NAMES[0])
    if asked is None:
        return importlib.import_module(name).Callback()
    return _callback(name, asked)


def _callback(name: str, asked: RequestedRun) -> Any:
    library = importlib.import_module(name)

    class HandsTheBatchOver(library.Callback):  # type: ignore[misc,name-defined]
        def setup(self, trainer: Any, _module: Any, stage: str) -> None:
            if stage != "fit":
                return
            asked.give("lightning", trainer, accumulate_grad_batches=asked.accumulation_steps)
            if asked.probe_steps is not None:
                checkpoint = library.callbacks.Checkpoint
                trainer.callbacks = [each for each in trainer.callbacks if not isinstance(each, checkpoint)]
            _follow_loaders(trainer, asked)

    return HandsTheBatchOver()


def _follow_loaders(trainer: Any, asked: RequestedRun) -> None:
    """After Lightning has put in a sampler of its own, for which it makes the loader anew, and before it takes the
    length: the one place where loaders of scripts, modules and data modules all come by, whenever they are made."""
    prepare = trainer._data_connector._prepare_dataloader

    def prepared(dataloader: Any, shuffle: bool, mode: str) -> Any:
        ready = prepare(dataloader, shuffle=shuffle, mode=mode)
        if mode == "train":
            give_batch(asked, "lightning", ready)
            _lengthen(trainer, ready, asked.probe_steps)
        return ready

    trainer._data_connector._prepare_dataloader = prepared


def _for_probe(own: dict[str, Any], steps: int) -> dict[str, Any]:
    """Validation of one batch is left, because schedules and early stopping ask for its result."""
    place = this_place()
    validates = own.get("limit_val_batches", 1) != 0
    return {
        "devices": place.local_world_size,
        "num_nodes": place.nodes,
        "max_steps": max(own["max_steps"], steps) if own.get("max_steps", -1) > 0 else -1,
        "min_steps": steps,
        "max_time": None,
        "fast_dev_run": False,
        "limit_val_batches": int(validates),
        "num_sanity_val_steps": 0,
        "val_check_interval": 1.0,
        "check_val_every_n_epoch": 1,
    }


def _lengthen(trainer: Any, loader: Any, steps: int | None) -> None:
    """Only where it would be over before the probe: schedules of the learning rate depend on the length."""
    if steps is None:
        return
    loop, limit = trainer.fit_loop, trainer.limit_train_batches
    batches = min(length_of(loader), limit) if isinstance(limit, int) else int(length_of(loader) * limit)
    if loop.max_epochs not in (None, -1):
        loop.max_epochs = max(loop.max_epochs, epochs_for(steps, batches, trainer.accumulate_grad_batches))
