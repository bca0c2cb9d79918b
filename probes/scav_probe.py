"""One line for scripts whose step is not an optimizer step: `for batch in scav_probe.steps(loader):`, or
`with scav_probe.step(samples=len(batch)):`.

    from probes import scav_probe

Outside a probe both do nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from probes import counting, session

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
