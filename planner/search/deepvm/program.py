"""DeepVM's choice as integer programs, one for each architecture and GPU type, solved by HiGHS.

K(n) is not linear in n, so every n is a binary variable of its own and its objective a constant: exact. With p the
prices of GPU and memory nodes, n_sat the nodes that saturate the network of a memory node:

    x[n]          that many GPU nodes                   sum of x = 1
    y[w], m[w]    memory nodes of type w: whether and   sum of y = 1 for tiering, else 0;  m[w] <= most[w] y[w]
                  how many                              y[w] = 0 where the memory is too small
    money         sum of p(n) x[n] + sum of p[w] m[w] <= budget, in whole units
    saturation    sum of (n + 1) x[n] <= n_sat[w] m[w] + (1 - y[w]) most: n / m < n_sat for the w that is chosen

All types in one program would be as right, but its relaxation mixes cheap with fast types: a minute for 47 types and
$100 an hour, where these take a second. A type whose best n does not reach what was found already is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.columns import Floats, Ints
from planner.search.deepvm.inputs import (
    DEEPVM_ARCHITECTURES,
    Architecture,
    Cluster,
    CpuType,
    GpuType,
    Limits,
    anchors,
    gpu_micro_usd,
    micro_usd,
    saturation_nodes,
)

_INFEASIBLE = 2  # scipy's status


def solve(
    gpus: Sequence[GpuType],
    cpus: Sequence[CpuType],
    limits: Limits,
    count: int = 3,
    architectures: Sequence[Architecture] = DEEPVM_ARCHITECTURES,
) -> list[Cluster]:
    """The best by Z, ties by price, then what is best without those before it; fewer where nothing else fits."""
    programs = [_Program.build(gpu, cpus, limits, architecture) for architecture in architectures for gpu in gpus]
    found: list[Cluster] = []
    for program in sorted((program for program in programs if len(program.nodes)), key=lambda row: -row.values.max()):
        if len(found) == count and program.values.max() < found[-1].value:
            break
        for cluster in program.ranked(limits):
            found = sorted([*found, cluster], key=_order)[:count]
            if len(found) == count and _order(cluster) >= _order(found[-1]):
                break
    return found


def _order(cluster: Cluster) -> tuple[float, int]:
    return -cluster.value, cluster.hourly_micro_usd


@dataclass(slots=True)
class _Rows:
    """A sparse matrix in the making, each row with its bounds."""

    width: int
    entries: list[tuple[int, int, float]]
    low: list[float]
    high: list[float]

    def add(self, terms: Sequence[tuple[int, float]], *, low: float = -math.inf, high: float) -> None:
        self.entries += [(len(self.high), column, value) for column, value in terms]
        self.low.append(low)
        self.high.append(high)

    def constraint(self) -> LinearConstraint:
        row, column, value = zip(*self.entries, strict=True)
        matrix = coo_array((value, (row, column)), shape=(len(self.high), self.width))
        return LinearConstraint(matrix.tocsc(), self.low, self.high)


@dataclass(slots=True)
class _Program:
    """Columns: x of every node count, then y, then m of every memory node type."""

    architecture: Architecture
    gpu: GpuType
    cpus: Sequence[CpuType]
    nodes: Ints
    values: Floats
    prices: Floats
    rows: _Rows
    most: Floats

    @classmethod
    def build(cls, gpu: GpuType, cpus: Sequence[CpuType], limits: Limits, architecture: Architecture) -> _Program:
        nodes = limits.gpu_nodes(gpu, architecture)
        gpu_usd = gpu_micro_usd(gpu, architecture, nodes)
        affordable = gpu_usd <= limits.budget_micro_usd
        nodes, gpu_usd = nodes[affordable], gpu_usd[affordable]
        tier_usd = [micro_usd(cpu.on_demand_usd) for cpu in cpus]
        unit = math.gcd(*gpu_usd.tolist(), *tier_usd) or 1  # the largest that all prices are multiples of
        prices = np.concatenate((gpu_usd, np.zeros(len(cpus)), tier_usd)) / unit
        chosen = [float(cpu.memory_gib >= limits.memory_gib) for cpu in cpus]
        most = np.concatenate((np.ones(len(nodes)), chosen, [limits.most_cpu_nodes(cpu) for cpu in cpus]))
        values = gpu.values(nodes)
        program = cls(architecture, gpu, cpus, nodes, values, prices, _Rows(len(prices), [], [], []), most)
        program._add_choice()
        # Half a unit above the most that whole units allow: no tolerance of the solver reaches across it.
        program.rows.add(list(enumerate(prices.tolist())), high=limits.budget_micro_usd // unit + 0.5)
        if architecture == "tiering":
            program._add_saturation()
        return program

    def ranked(self, limits: Limits) -> Iterator[Cluster]:
        while (cluster := self._best()) is not None:
            self._exclude(cluster)
            if cluster.hourly_micro_usd <= limits.budget_micro_usd:  # the solver keeps rows to a tolerance, we exactly
                yield cluster

    def _best(self) -> Cluster | None:
        """First the highest Z, then among all counts that reach it the lowest price."""
        # One count is chosen, so the rank of its Z serves as well as Z, and whole numbers need no tolerance.
        _, ranks = np.unique(self.values, return_inverse=True)
        objective = np.zeros(len(self.prices))
        objective[: len(self.nodes)] = -ranks
        first = self._minimise(objective, self.most)
        if first is None:
            return None
        reached = ranks[int(np.argmax(first[: len(self.nodes)]))]
        most = self.most.copy()
        most[: len(self.nodes)] *= ranks == reached
        second = self._minimise(self.prices, most)
        return None if second is None else self._cluster(second)

    def _exclude(self, cluster: Cluster) -> None:
        """With any number of memory nodes."""
        count = int(np.flatnonzero(self.nodes == cluster.nodes)[0])
        if cluster.cpu is None:
            self.most[count] = 0.0
        else:
            self.rows.add([(count, 1.0), (len(self.nodes) + self.cpus.index(cluster.cpu), 1.0)], high=1.0)

    def _add_choice(self) -> None:
        first, second = len(self.nodes), len(self.nodes) + len(self.cpus)
        tiers = float(self.architecture == "tiering")
        self.rows.add([(column, 1.0) for column in range(first)], low=1.0, high=1.0)
        self.rows.add([(column, 1.0) for column in range(first, second)], low=tiers, high=tiers)
        for place in range(len(self.cpus)):
            self.rows.add([(second + place, 1.0), (first + place, -self.most[second + place])], high=0.0)

    def _add_saturation(self) -> None:
        first, second = len(self.nodes), len(self.nodes) + len(self.cpus)
        needed = [(column, nodes + 1.0) for column, nodes in enumerate(self.nodes.tolist())]
        most = float(self.nodes.max(initial=0)) + 1
        for place, cpu in enumerate(self.cpus):
            taken = (second + place, -float(saturation_nodes(self.gpu, cpu)))
            self.rows.add([*needed, taken, (first + place, most)], high=most)

    def _minimise(self, objective: Floats, most: Floats) -> Ints | None:
        found = milp(
            objective,
            integrality=np.ones(len(self.prices)),
            bounds=Bounds(0, most),
            constraints=self.rows.constraint(),
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None:
            assert found.status == _INFEASIBLE, found.message  # noqa: S101
            return None
        return np.asarray(np.rint(found.x), dtype=np.int64)

    def _cluster(self, columns: Ints) -> Cluster:
        count, chosen, numbers = np.split(columns, (len(self.nodes), len(self.nodes) + len(self.cpus)))
        nodes = self.nodes[[int(np.argmax(count))]]
        place = int(np.argmax(chosen)) if self.architecture == "tiering" else None
        return Cluster(
            architecture=self.architecture,
            gpu=self.gpu,
            nodes=int(nodes[0]),
            on_demand_nodes=int(anchors(self.architecture, nodes)[0]),
            cpu=None if place is None else self.cpus[place],
            cpu_nodes=0 if place is None else int(numbers[place]),
        )
