"""What scav's commands choose on the jobs of `regret_data`: `scav probe --on aws` measures, `scav plan` chooses.

The code is the commands' own, from the survey to the preference among candidates. Two things are replaced: a probing
cluster answers with what was recorded at its batch sizes, or the nearest to them; and the choice is among the recorded
whole-node configurations, since only of these it is known how well it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import numpy as np
from cold_start import NETWORKS
from numpy.typing import NDArray
from regret_data import HOURLY_USD, Problem
from regret_methods import StepModel, Trial
from step_time_data import Group

from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.parse import JobFile
from planner.inputs.job.schema import Job, Objective
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.models.configurations import Configurations
from planner.models.step_time import model as step_time_model
from planner.models.step_time.prior import Prior
from planner.outside.store import load_catalog
from planner.probing.next_probe import Belief, Visit, probe_in_turn
from planner.probing.probe_clusters import NODE_COUNTS, ProbeCluster, node_price, probe_clusters, promising
from planner.probing.probe_plan import measuring_seconds
from planner.probing.tuning import RentedSpace, space_of
from planner.search.every_candidate import evaluate
from planner.search.pricing import Candidate
from planner.search.ranking import preference
from planner.search.survey import Survey, take_survey

REGION, ZONE = "us-east-1", "use1-az1"
# Which type of the catalogue has the hardware of each cluster; ND40rs_v2 has that of a p3dn.24xlarge.
INSTANCE_TYPES = {"aws": "g4dn.12xlarge", "azure": "p3dn.24xlarge", "dgx-ext": "p4d.24xlarge"}
PRECISION = "tf32"  # what PyTorch did on its own where a GPU has it
# What the owner of each application would write into scav.yaml. The first two are those of `cold_start.py`, with
# activations of four bytes instead of two. An application that is not here is taken for a ResNet-50.
WORKLOADS = {
    "imagenet": NETWORKS["resnet50"] | {"activation_bytes_per_sample": 120e6, "optimizer": "momentum"},
    "bert": NETWORKS["bert_base_squad"] | {"activation_bytes_per_sample": 580e6, "optimizer": "adamw"},
    "cifar10": {
        "flops_per_sample": 6 * 0.56e9,
        "parameters": 11_200_000,
        "activation_bytes_per_sample": 20e6,
        "optimizer": "momentum",
    },
    "ncf": {
        "flops_per_sample": 1e6,
        "parameters": 3_000_000,
        "activation_bytes_per_sample": 10e3,
        "optimizer": "adam",
    },
}
OTHER = "imagenet"

Floats = NDArray[np.float64]
# Which candidate to take: the best at the upper end of its interval, by its median, or by its median if it was probed.
Rule = Literal["upper end", "median", "best measured"]


class Probed(NamedTuple):
    """What a plan follows from after some probes; rows are those of the whole-node problem."""

    measured: list[int]
    probe_usd: float
    survey: Survey


class StepTimeScore(NamedTuple):
    """Of whole-node configurations that were not probed."""

    mape: float
    coverage90: float


def whole_nodes(problem: Problem) -> Problem:
    """Without placements on parts of nodes, which scav does not rent."""
    catalog = load_catalog(None, beside=Path("nowhere"))[0]
    kept = [_is_whole(group, catalog) for group in problem.groups]
    return Problem(
        app=problem.app,
        groups=tuple(group.at(rows) for group, rows in zip(problem.groups, kept, strict=True)),
        iterations=problem.iterations[np.concatenate(kept)],
        runs=problem.runs,
    )


def _is_whole(group: Group, catalog: Catalog) -> NDArray[np.bool_]:
    return group.workers == group.nodes * catalog.instance_type_by_name[INSTANCE_TYPES[group.cluster]].gpu_count


class Commands:
    """scav on one job, as large as `scale` times the recorded one. `whole` holds whole nodes only."""

    def __init__(self, whole: Problem, scale: float, prior: Prior | None = None) -> None:
        self.whole = whole
        self.catalog = catalog_of(whole)
        self.job = job_of(whole, scale)
        self.prior = prior

    def without_probes(self) -> Probed:
        return Probed([], 0.0, self._survey([]))

    def with_probes(self, max_usd: float) -> Probed:
        """What `scav probe --on aws --max-cost` measures: cheapest first, while the next one's maximum is left."""
        clusters = probe_clusters(self._inputs([]), self._survey([]), node_counts=NODE_COUNTS, spot=False)
        measured: list[int] = []
        probe_usd = 0.0
        for cluster in clusters:
            rows = self._recorded(cluster)
            if rows and probe_usd + cluster.max_usd <= max_usd:
                probe_usd += self._usd(cluster, rows)
                measured += rows
        return Probed(measured, probe_usd, self._survey([self._measurement(row) for row in measured]))

    def tuned(self, objective: Objective) -> Probed:
        """What `scav tune --on aws` measures without a cap, of the recorded configurations."""
        job = self.job.model_copy(update={"objective": objective})
        inputs = self._inputs([], job)
        survey = self._surveyed(inputs)
        rented = self._rented(inputs, survey)
        measured: list[int] = []
        spent = [0.0]

        def believe() -> Belief:
            now = self._inputs([self._measurement(row) for row in measured], job)
            return rented.believe(now, self._surveyed(now))

        def measure(visit: Visit) -> bool:
            cluster = rented.cluster(inputs, survey, visit)
            rows = self._recorded(cluster)
            spent[0] += self._usd(cluster, rows)
            measured.extend(row for row in rows if row not in measured)
            return True

        probe_in_turn(rented.space, rented.start, believe, measure)
        return Probed(measured, spent[0], self._survey([self._measurement(row) for row in measured]))

    def _rented(self, inputs: PlanInputs, survey: Survey) -> RentedSpace:
        """Of the types that the command would try, what was recorded."""
        recorded = {each.instance_type.name: each for each in self._configurations()}
        sold = []
        for offer in promising(inputs, survey):
            table, price = recorded[offer.instance_type], node_price(inputs, offer, spot=False)
            order = np.lexsort((table.gpu_batch, table.nodes))
            if price is not None:
                sold.append((offer, price, table.at(order)))
        return space_of(sold, inputs, survey)

    def _usd(self, cluster: ProbeCluster, rows: Sequence[int]) -> float:
        measuring = measuring_seconds(self.whole.column("step_seconds")[list(rows)].tolist())
        seconds = min(cluster.startup_seconds + measuring, cluster.max_seconds)  # then it is ended
        return cluster.hourly_usd * seconds / 3600

    def choose(self, probed: Probed, objective: Objective, rule: Rule = "upper end") -> Trial:
        """By default as `scav plan` prefers candidates: at the quantile of the job's confidence."""
        rows = [
            candidate
            for configurations in self._configurations()
            for candidate in evaluate(
                self.job, self.catalog, configurations, (REGION,), probed.survey.predictors, "on_demand"
            )
        ]
        allowed = probed.measured if rule == "best measured" else range(len(rows))
        return Trial(probed.measured, min(allowed, key=lambda row: _preferred(rows[row], objective, rule)))

    def score(self, probed: Probed) -> StepTimeScore:
        """Of what `scav predict` says of a step."""
        parts = [probed.survey.models.step_time.predict(each) for each in self._configurations()]
        low, middle, high = (np.concatenate([getattr(part, q) for part in parts]) for q in ("p05", "p50", "p95"))
        asked = np.setdiff1d(np.arange(len(middle)), probed.measured)
        truth = self.whole.column("step_seconds")[asked]
        inside = (low[asked] <= truth) & (truth <= high[asked])
        return StepTimeScore(100 * float(np.mean(np.abs(middle[asked] / truth - 1))), 100 * float(inside.mean()))

    def step_model(self, probed: Probed) -> StepModel:
        """Its step times alone, for whoever would choose by them without a model of the samples."""
        parts = [probed.survey.models.step_time.predict(each).p50 for each in self._configurations()]
        return lambda _problem, _rows: (np.log(np.concatenate(parts)), np.zeros(sum(map(len, parts))))

    def _survey(self, measurements: Sequence[Measurement]) -> Survey:
        return self._surveyed(self._inputs(measurements))

    def _surveyed(self, inputs: PlanInputs) -> Survey:
        with _with(self.prior):
            return take_survey(inputs)

    def _inputs(self, measurements: Sequence[Measurement], job: Job | None = None) -> PlanInputs:
        nothing = "0" * 64
        provenance = Provenance(
            job_sha256=nothing,
            measurements_sha256=None,
            catalog_sha256=nothing,
            catalog="benchmark",
            catalog_date=self.catalog.date,
        )
        job_file = JobFile(job=job or self.job, file="scav.yaml", lines={})
        return PlanInputs(
            job_file=job_file, catalog=self.catalog, measurements=tuple(measurements), provenance=provenance
        )

    def _configurations(self) -> Iterator[Configurations]:
        for group in self.whole.groups:
            instance_type = self.catalog.instance_type_by_name[INSTANCE_TYPES[group.cluster]]
            yield Configurations.of(self.catalog, instance_type, nodes=group.nodes, gpu_batch=group.gpu_batch)

    def _recorded(self, cluster: ProbeCluster) -> list[int]:
        """The rows with that many nodes whose batches are nearest to those asked for; none where none was recorded."""
        names = np.array([INSTANCE_TYPES[group.cluster] for group in self.whole.groups])[self.whole.node_type]
        rows = np.flatnonzero((names == cluster.instance_type) & (self.whole.column("nodes") == cluster.nodes))
        if not len(rows):
            return []
        known = np.log(self.whole.column("gpu_batch")[rows])
        nearest = [int(rows[np.argmin(np.abs(known - np.log(batch)))]) for batch in cluster.gpu_batches]
        return list(dict.fromkeys(nearest))

    def _measurement(self, row: int) -> Measurement:
        name = INSTANCE_TYPES[self.whole.groups[int(self.whole.node_type[row])].cluster]
        sync = float(self.whole.column("sync_seconds")[row])
        return Measurement(
            instance_type=name,
            nodes=int(self.whole.column("nodes")[row]),
            gpus_per_node=self.catalog.instance_type_by_name[name].gpu_count,
            gpu_batch=int(self.whole.column("gpu_batch")[row]),
            precision=PRECISION,
            step_seconds=float(self.whole.column("step_seconds")[row]),
            exposed_sync_seconds=sync if np.isfinite(sync) else None,
        )


def catalog_of(problem: Problem) -> Catalog:
    """The embedded one, with only these types, in one zone and at the prices of data/README.md."""
    catalog = load_catalog(None, beside=Path("nowhere"))[0]
    prices = {INSTANCE_TYPES[group.cluster]: HOURLY_USD[group.cluster] for group in problem.groups}
    document: dict[str, Any] = catalog.model_dump(mode="json")
    document["instance_types"] = [row for row in document["instance_types"] if row["name"] in prices]
    document["regions"] = [row for row in document["regions"] if row["name"] == REGION]
    source = document["instance_types"][0]["source"]
    document["offers"] = [
        {"instance_type": name, "region": REGION, "on_demand_usd": usd, "spot_usd": {ZONE: None}, "source": source}
        for name, usd in prices.items()
    ]
    return Catalog.model_validate(document)


def _preferred(candidate: Candidate, objective: Objective, rule: Rule) -> tuple[float | str, ...]:
    """Of what was measured the medians differ by the measurement's noise only."""
    if rule == "upper end":
        return preference(candidate, objective)
    return (candidate.hours.p50,) if objective == "time" else (candidate.usd.p50,)


def job_of(problem: Problem, scale: float) -> Job:
    """On demand, with the validated batches; the three told runs as its convergence."""
    (first, samples), *others = problem.runs
    workload = {
        **WORKLOADS.get(problem.app, WORKLOADS[OTHER]),
        "dataset_samples": 1_000_000,  # nothing here is counted in epochs
        "precision": PRECISION,
        "global_batch": f"{round(first)}..{round(others[-1][0])}",
        "target": {"samples": scale * samples, "reference_batch": round(first)},
        "convergence": {"runs": [{"batch": round(batch), "samples": scale * needed} for batch, needed in others]},
    }
    constraints = {"spot": "never", "nodes": f"1..{int(problem.column('nodes').max())}", "regions": [REGION]}
    return Job.model_validate({"name": "benchmark", "workload": workload, "constraints": constraints})


@contextmanager
def _with(prior: Prior | None) -> Iterator[None]:
    """What a scav would do whose prior comes from other applications."""
    if prior is None:
        yield
        return
    with patch.object(step_time_model, "USUAL", prior):
        yield
