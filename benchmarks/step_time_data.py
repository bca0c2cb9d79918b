"""Public step-time measurements as columns, and the splits of data/README.md over them.

`sia-sosp23/<app>/{placements,scalability}-<cluster>.csv`: every application and every one of CLUSTERS that is there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows

CLUSTERS = ("aws", "azure", "rtx", "dgx-ext")
SPLITS = ("A", "B", "C", "D", "E", "F", "G", "H", "I", "P")
SEEDS = (0, 1, 2)
FOLDS = 5
MOST_PROBES = 12
MOST_PROBED_NODES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One application on one cluster. Row i: `workers[i]` GPUs on `nodes[i]` nodes, most_per_node[i] on the fullest."""

    app: str
    cluster: str
    placement: NDArray[np.str_]
    nodes: NDArray[np.int64]
    workers: NDArray[np.int64]
    most_per_node: NDArray[np.int64]
    gpu_batch: NDArray[np.int64]
    step_seconds: NDArray[np.float64]
    sync_seconds: NDArray[np.float64]

    @property
    def name(self) -> str:
        return f"{self.app}/{self.cluster}"

    def __len__(self) -> int:
        return len(self.step_seconds)

    def at(self, rows: NDArray[np.bool_]) -> Group:
        columns = ("placement", "nodes", "workers", "most_per_node", "gpu_batch", "step_seconds", "sync_seconds")
        return replace(self, **{column: getattr(self, column)[rows] for column in columns})

    def placements(self, rows: NDArray[np.int64] | None = None) -> Placements:
        """Of some rows, or of all."""
        rows = np.arange(len(self)) if rows is None else rows
        return Placements(
            nodes=self.nodes[rows],
            workers=self.workers[rows],
            most_per_node=self.most_per_node[rows],
            gpu_batch=self.gpu_batch[rows],
            accumulation_steps=np.ones_like(rows),
        )

    def measured(self, rows: NDArray[np.int64] | None = None) -> MeasuredRows:
        rows = np.arange(len(self)) if rows is None else rows
        return measured_rows(self.placements(rows), self.step_seconds[rows], self.sync_seconds[rows])


@dataclass(frozen=True, slots=True)
class Fold:
    """Which rows to fit to, and which to be judged by."""

    fit: NDArray[np.int64]
    test: NDArray[np.int64]


def load_groups(folder: Path, clusters: Sequence[str] = CLUSTERS) -> list[Group]:
    """Every application found below `folder`, on those of these clusters where it was measured."""
    applications = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return [
        _load_group(folder / app, cluster)
        for app in applications
        for cluster in clusters
        if (folder / app / f"placements-{cluster}.csv").is_file()
    ]


def _load_group(folder: Path, cluster: str) -> Group:
    rows = [(row["placement"], row) for row in _read(folder / f"placements-{cluster}.csv")]
    scalability = folder / f"scalability-{cluster}.csv"
    for row in _read(scalability) if scalability.is_file() else ():
        nodes, workers = int(row["num_nodes"]), int(row["num_replicas"])
        # The second campaign on this cluster repeats its placements in the other file.
        if cluster != "dgx-ext" or nodes > 2:
            rows.append((_even_placement(nodes, workers), row))
    rows = [(placement, row) for placement, row in rows if 0 < float(row["step_time"]) < float("inf")]
    unique = {(placement, round(float(row["local_bsz"]))): row for placement, row in reversed(rows)}
    keys = sorted(unique, key=lambda key: (len(key[0]), key))
    digits = [[int(digit) for digit in placement] for placement, _ in keys]
    return Group(
        app=folder.name,
        cluster=cluster,
        placement=np.array([placement for placement, _ in keys]),
        nodes=np.array([len(row) for row in digits]),
        workers=np.array([sum(row) for row in digits]),
        most_per_node=np.array([max(row) for row in digits]),
        gpu_batch=np.array([batch for _, batch in keys]),
        step_seconds=np.array([float(unique[key]["step_time"]) for key in keys]),
        sync_seconds=np.array([float(unique[key]["sync_time"]) for key in keys]),
    )


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _even_placement(nodes: int, workers: int) -> str:
    each, more = divmod(workers, nodes)
    return str(each) * (nodes - more) + str(each + 1) * more


def folds(group: Group, split: str) -> Iterator[Fold]:
    """The folds of a split; none where the cluster is too small for it."""
    every = np.arange(len(group))
    for fit in _fit_masks(group, split):
        test = _test_mask(group, split, fit)
        if fit.sum() >= 2 and test.any():
            yield Fold(every[fit], every[test])


def _fit_masks(group: Group, split: str) -> Iterator[NDArray[np.bool_]]:
    workers, batches = group.workers, np.unique(group.gpu_batch)
    if split == "A":
        yield from _cross_validation(np.arange(len(group)))
    elif split == "B":
        yield from _cross_validation(np.unique(group.placement, return_inverse=True)[1])
    elif split in ("C", "D"):
        yield from _random_rows(np.ones(len(group), dtype=bool), {"C": 10, "D": 25}[split])
    elif split in ("E", "F"):
        yield workers <= {"E": 4, "F": 8}[split]
    elif split == "G":
        yield group.nodes <= 2
    elif split == "H":
        yield group.gpu_batch < batches[min((len(batches) + 1) // 2, len(batches) - 1)]
    elif split == "I":
        yield from _random_rows(workers <= 4, 16)
    elif split == "P":
        yield probe_plan(group)
    else:
        raise ValueError(f"no split {split!r}")


def _test_mask(group: Group, split: str, fit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if split in ("E", "F", "I"):
        return group.workers > {"E": 8, "F": 16, "I": 8}[split]
    return ~fit & (group.nodes >= 3) if split == "G" else ~fit


def _cross_validation(labels: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    names = np.unique(labels)
    order = np.random.default_rng(0).permutation(len(names))
    for fold in range(FOLDS):
        yield ~np.isin(labels, names[order[fold::FOLDS]])


def _random_rows(allowed: NDArray[np.bool_], count: int) -> Iterator[NDArray[np.bool_]]:
    for seed in SEEDS:
        mask = np.zeros(len(allowed), dtype=bool)
        rows = np.flatnonzero(allowed)
        mask[np.random.default_rng(seed).choice(rows, min(count, len(rows)), replace=False)] = True
        yield mask


def probe_plan(group: Group) -> NDArray[np.bool_]:
    """What the tool would measure first: one GPU, half a node, a full one, two of each, four; small and large batches.

    Where there are fewer than four nodes, or no such placement was measured, the plan does with what there is.
    """
    full = int(group.most_per_node.max())
    half = full // 2
    shapes = [(1, 1, 2), (1, full, 2), (2, 2 * full, 2), (1, half, 2), (4, 4 * full, 2), (2, 2, 1), (2, 2 * half, 1)]
    mask = np.zeros(len(group), dtype=bool)
    for nodes, workers, batches in shapes:
        here = np.flatnonzero((group.nodes == nodes) & (group.workers == workers))
        here = here[group.most_per_node[here] == -(-workers // nodes)]
        if len(here) and nodes <= MOST_PROBED_NODES and mask.sum() + batches <= MOST_PROBES:
            spread = np.linspace(0, len(here) - 1, batches) if batches > 1 else [len(here) // 2]
            mask[here[np.argsort(group.gpu_batch[here])][np.round(spread).astype(int)]] = True
    return mask
