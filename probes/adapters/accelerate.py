"""Accelerate: the steps that `accumulate` puts together, and the batch of every loader that is prepared."""

from __future__ import annotations

import functools
import sys
from typing import Any
from weakref import WeakSet

from probes.adapters.loaders import give_batch
from probes.adapters.requested_run import RequestedRun


def adapt(module: Any, asked: RequestedRun) -> None:
    """`module` is accelerate.accelerator. The accelerator of a Trainer does as the Trainer's arguments say."""
    own: WeakSet[Any] = WeakSet()
    make, prepare = module.Accelerator.__init__, module.Accelerator.prepare_data_loader

    @functools.wraps(make)
    def made(accelerator: Any, *args: Any, **kwargs: Any) -> None:
        of_script = not sys._getframe(1).f_globals.get("__name__", "").startswith("transformers.")
        if of_script and asked.probe_steps is not None:
            kwargs["log_with"] = None
        make(accelerator, *args, **kwargs)
        if of_script:
            asked.give("accelerate", accelerator, gradient_accumulation_steps=asked.accumulation_steps)
            own.add(accelerator)

    @functools.wraps(prepare)
    def prepared(accelerator: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        again = getattr(data_loader, "_is_accelerate_prepared", False)
        if accelerator in own and not again:
            processes = accelerator.num_processes if accelerator.split_batches else 1
            give_batch(asked, "accelerate", data_loader, processes=processes)
        return prepare(accelerator, data_loader, *args, **kwargs)

    module.Accelerator.__init__, module.Accelerator.prepare_data_loader = made, prepared
