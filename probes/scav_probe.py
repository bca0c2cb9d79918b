"""What a script may say to scav, in one line.

    from probes import scav_probe

Where a step is not an optimizer step: `for batch in scav_probe.steps(loader):`, or
`with scav_probe.step(samples=len(batch)):`. Outside a probe both do nothing at all.

Where Hugging Face's Trainer or Lightning trains: `Trainer(callbacks=[scav_probe.TrainerCallback()])`, or
`scav_probe.LightningCallback()`. They hand over the batch of a probe or of a planned run, and nothing elsewhere.

Where a model is spread over processes: `scav_probe.strategy()` is what is asked for, DDP where nobody asks;
`model = scav_probe.shard(model, blocks=[Block])` does it with PyTorch's own means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from probes import cluster, counting, session
from probes.adapters import lightning, transformers
from probes.adapters.requested_run import RequestedRun
from probes.strategy import Strategy

if TYPE_CHECKING:
    import torch

Batch = TypeVar("Batch")


def steps(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches themselves; each turn of the loop is one step."""
    for batch in batches:
        with step(samples=counting.samples_in(batch)):
            yield batch


@contextmanager
def step(samples: int | None = None) -> Iterator[None]:
    """What is inside is one step of so many samples on this process, whatever optimizers do meanwhile."""
    probe = session.current()
    if probe is not None:
        probe.steps_are_marked = True
    yield
    if probe is not None:
        probe.after_marked_step(samples)


def TrainerCallback() -> Any:  # noqa: N802  # named as what it makes
    """Of Hugging Face; to be made before the Trainer, as `Trainer(callbacks=[…])` does."""
    return transformers.callback(_requested_run())


def LightningCallback() -> Any:  # noqa: N802
    return lightning.callback(_requested_run())


def strategy() -> Strategy:
    """How the model is to be spread over the processes of this probe or run."""
    probe = session.current()
    if probe is not None:
        probe.strategy_is_taken = True
    return Strategy.from_environment() or Strategy()


def shard(model: torch.nn.Module, **how: Any) -> torch.nn.Module:
    """As `strategy()` says; `how` is that of `probes.sharding.shard`: blocks, tensor_plan, options of the wrapper."""
    from probes import sharding

    return sharding.shard(model, **{"strategy": strategy(), **how})


def data_parallel() -> tuple[int, int]:
    """Which of how many parts of a batch this process takes."""
    from probes import sharding

    return sharding.data_parallel(strategy(), cluster.this_place())


def _requested_run() -> RequestedRun | None:
    probe = session.current()
    if probe is not None:
        probe.batch_is_taken = True
    return RequestedRun.from_environment()
