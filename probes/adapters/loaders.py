"""Another batch size for a data loader that exists already."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from probes.adapters.requested_run import RequestedRun


def give_batch(asked: RequestedRun, library: str, loader: Any, *, processes: int = 1) -> None:
    """In place, so that sampler, collation, workers, order and `drop_last` stay what they are.

    Batches are cut by the batch sampler, whichever it is, of an IterableDataset as well. Loaders without one, whose
    dataset makes whole batches, stay as they are; the probe then sees another batch than it asked for and says so.
    `processes` share one batch of the loader.
    """
    sampler: Any = getattr(loader, "batch_sampler", None)
    if asked.gpu_batch is None or not isinstance(loader, DataLoader) or not hasattr(sampler, "batch_size"):
        return
    samples = asked.gpu_batch * processes
    asked.give(library, sampler, batch_size=samples)
    if loader.batch_size is not None:
        object.__setattr__(loader, "batch_size", samples)  # for its length; torch refuses it, fearing half a change
