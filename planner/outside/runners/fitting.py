"""Probes one after the other, going on where one does not fit the memory: the largest batch size is then looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.errors import OutOfMemory
from planner.inputs import Measurement
from planner.outside.runners.shared_with_probes import largest_fitting, next_batch, smallest_too_large
from planner.probing import Probe, probe_of

Run = Callable[[Probe], Measurement]
Say = Callable[[str], None]
Tried = dict[int, bool | None]


def measure_what_fits(
    run: Run, probes: Sequence[Probe], *, known: Iterable[Measurement] = (), say: Say
) -> Iterator[Measurement]:
    """`run` raises OutOfMemory where a probe does not fit; `say` gets a line for each cluster where one did not.

    One cluster after the other, smallest batch size first. What is `known` of earlier runs is not tried again. Raises
    OutOfMemory where not even one sample fits.
    """
    clusters: dict[Probe, list[int]] = {}
    for probe in probes:
        clusters.setdefault(probe._replace(gpu_batch=1), []).append(probe.gpu_batch)
    tried = _tried_before(known)
    for cluster, batches in clusters.items():
        yield from _measure_cluster(run, cluster, batches, tried.get(cluster, {}), say)


def _measure_cluster(run: Run, cluster: Probe, asked: Sequence[int], tried: Tried, say: Say) -> Iterator[Measurement]:
    """A row is held back until it is known whether the next size fits: it then says which does not."""
    held: Measurement | None = None
    limit = smallest_too_large(tried)
    if limit is not None and min(asked) >= limit:  # an earlier run has looked for the largest
        _tell(cluster, asked, tried, say)
        return
    while (batch := next_batch(tried, asked)) is not None:
        try:
            row = run(cluster._replace(gpu_batch=batch))
        except OutOfMemory:
            tried[batch] = False
            continue
        except BaseException:  # Ctrl-C too: what was measured before is not lost
            if held is not None:
                yield _marked(held, tried)
            raise
        tried[batch] = True
        if held is not None:
            yield _marked(held, tried)
        held = row
    if held is not None:
        yield _marked(held, tried)
    _tell(cluster, asked, tried, say)


def _tried_before(rows: Iterable[Measurement]) -> dict[Probe, Tried]:
    tried: dict[Probe, Tried] = {}
    for row in rows:
        sizes = tried.setdefault(probe_of(row)._replace(gpu_batch=1), {})
        sizes[row.gpu_batch] = True
        if row.out_of_memory_at is not None:
            sizes[row.out_of_memory_at] = False
    return tried


def _marked(row: Measurement, tried: Tried) -> Measurement:
    return row.model_copy(update={"out_of_memory_at": smallest_too_large(tried)})


def _tell(cluster: Probe, asked: Sequence[int], tried: Tried, say: Say) -> None:
    too_large = [batch for batch in asked if not tried.get(batch)]
    if not too_large:
        return
    where = f"of {cluster.nodes} x {cluster.gpus_per_node} workers"
    found = largest_fitting(tried)
    if found is None:
        raise OutOfMemory(f"not even local batch 1 fits the memory {where}", gpu_batch=1)
    say(f"local batch {min(too_large):,} does not fit the memory {where}; the largest that fits is {found:,}")
