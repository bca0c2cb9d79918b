"""Hugging Face's Trainer: batch and accumulation of its TrainingArguments.

Under a probe it also writes nothing into its own folders, reports to nobody, and does not stop before the probe.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from typing import Any

from probes.adapters.requested_run import RequestedRun, epochs_for, length_of
from probes.cluster import this_place

_NEVER = 10**9  # steps


def adapt_arguments(module: Any, asked: RequestedRun) -> None:
    """`module` is transformers.training_args. Before they are checked, and before the script reads them."""
    check = module.TrainingArguments.__post_init__

    @functools.wraps(check)
    def checked(arguments: Any, *args: Any, **kwargs: Any) -> None:
        _hand_over(arguments, asked)
        if asked.probe_steps is not None:
            _keep_quiet(arguments, asked)
        check(arguments, *args, **kwargs)

    module.TrainingArguments.__post_init__ = checked


def adapt_trainer(module: Any, asked: RequestedRun) -> None:
    """`module` is transformers.trainer. Once more when they are used: the script may have changed them."""
    make = module.Trainer.__init__

    @functools.wraps(make)
    def made(trainer: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(make).bind(trainer, *args, **kwargs).arguments
        if (arguments := given.get("args")) is not None:
            _hand_over(arguments, asked)
            if asked.probe_steps is not None:
                _lengthen(arguments, given.get("train_dataset"), asked.probe_steps)
        make(trainer, *args, **kwargs)

    module.Trainer.__init__ = made


def callback(asked: RequestedRun | None) -> Any:
    """For `Trainer(callbacks=[…])`. A Trainer's callbacks hear of it when its batch is settled; so it is being made,
    which comes before the Trainer, that hands the batch over."""
    library = importlib.import_module("transformers")
    if asked is not None:
        adapt_trainer(importlib.import_module("transformers.trainer"), asked)
    return library.TrainerCallback()


def _hand_over(arguments: Any, asked: RequestedRun) -> None:
    batch, accumulation = asked.gpu_batch, asked.accumulation_steps
    asked.give("transformers", arguments, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)
    if batch is not None:
        arguments.auto_find_batch_size = False


def _keep_quiet(arguments: Any, asked: RequestedRun) -> None:
    """Evaluations are put off rather than off: early stopping insists on them."""
    arguments.output_dir = str(asked.folder)
    arguments.save_strategy = arguments.logging_strategy = "no"
    arguments.report_to = "none"
    arguments.load_best_model_at_end = arguments.push_to_hub = False
    arguments.resume_from_checkpoint = None
    if arguments.eval_strategy != "no":
        arguments.eval_strategy, arguments.eval_steps, arguments.eval_on_start = "steps", _NEVER, False


def _lengthen(arguments: Any, dataset: Any, steps: int) -> None:
    """Only where it would be over before the probe: schedules of the learning rate depend on the length."""
    if arguments.max_steps > 0:
        arguments.max_steps = max(arguments.max_steps, steps)
        return
    batches = length_of(dataset) // (arguments.per_device_train_batch_size * this_place().world_size)
    epochs = epochs_for(steps, batches, arguments.gradient_accumulation_steps)
    arguments.num_train_epochs = max(math.ceil(arguments.num_train_epochs), epochs)
