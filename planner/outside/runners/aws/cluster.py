"""One probing cluster: rented, watched while it measures, and destroyed whatever happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import AwsFailed, InputError, ScavError
from planner.inputs import Measurement, Precision, Ran
from planner.outside import store, workspace_files
from planner.outside.aws import Access
from planner.outside.runners.aws.report import (
    Patience,
    Report,
    ReportReader,
    measurements_of,
    reason_to_give_up,
    status,
)
from planner.outside.runners.aws.teardown import APPLYING_MARK, PLAN_FILE, open_workspace, tear_down
from planner.outside.runners.interrupts import Interrupts
from planner.outside.terraform.workspace import Workspace
from planner.probing import ProbeCluster

IDENTITY_FILE = "scav.probe.json"
_NO_CAPACITY_SECONDS = 120.0  # AWS tries again by itself
_FAILED_LOOKS = 3  # in a row, each after botocore's own attempts: a network may be gone for some minutes


class Identity(NamedTuple):
    """What a workspace folder has to say about itself when the scav that wrote it is dead."""

    instance_type: str
    region: str
    precision: Precision
    image: str | None
    run_key: str | None = None  # not in folders of older versions
    run_command: str = ""

    def mark(self, row: Measurement) -> Measurement:
        return row if self.run_key is None else Ran(self.run_key, self.run_command, None).mark(row)

    def text(self) -> str:
        return json.dumps(self._asdict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def of(cls, folder: Path) -> Identity:
        text = store.load_text(folder / IDENTITY_FILE)
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise InputError("not written by scav", file=str(folder / IDENTITY_FILE)) from None


class ProbingOutcome(NamedTuple):
    """What the cluster cost at most, and why it ended early if it did."""

    usd: float
    failure: ScavError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRunner:
    """`keep` gets measurements as soon as they are here, before the cluster goes."""

    access: Access
    interrupts: Interrupts
    say: Callable[[str], None]
    keep: Callable[[Sequence[Measurement], float], None]
    first_report_seconds: float
    poll_seconds: float

    def run(
        self, cluster: ProbeCluster, folder: Path, files: Mapping[str, str], identity: Identity, max_usd: float
    ) -> ProbingOutcome:
        """Raises only when something may be left over; any other failure is part of the outcome."""
        failure: ScavError | None = None
        started = time.monotonic()
        try:
            try:
                self.interrupts.release()
                workspace_files.write_workspace(folder, {**files, IDENTITY_FILE: identity.text()})
                self._measure(cluster, folder, identity, max_usd, started)
            finally:
                self.interrupts.hold()
        except ScavError as error:
            failure = error
        finally:
            tear_down(folder, self.access, cluster.region, say=self.say)
        return ProbingOutcome(cluster.highest_hourly_usd * (time.monotonic() - started) / 3600, failure)

    def collect_and_destroy(self, folder: Path) -> None:
        """What the cluster of a scav that died had measured is kept; what is left of it goes."""
        identity = Identity.of(folder)
        try:
            terraform = open_workspace(folder, self.access, interruptible=False)
            reader = _report_reader(terraform, self.access, identity.region)
            self._keep(reader.records(), identity, usd=0.0)
        except (ScavError, KeyError) as error:  # mostly: it never got so far
            self.say(f"{folder.name}: nothing to collect ({error})")
        finally:
            tear_down(folder, self.access, identity.region, say=self.say)

    def _measure(self, cluster: ProbeCluster, folder: Path, identity: Identity, max_usd: float, started: float) -> None:
        reader = self._rent(cluster, folder)
        latest: list[Report] = []
        try:
            self._wait(cluster, reader, max_usd, started, latest)
        finally:  # batch sizes that were done before it failed
            self.interrupts.hold()
            records = latest[-1].records if latest else ()
            self._keep(records, identity, usd=cluster.hourly_usd * (time.monotonic() - started) / 3600)

    def _rent(self, cluster: ProbeCluster, folder: Path) -> ReportReader:
        terraform = open_workspace(folder, self.access)
        self.say(f"{cluster.name}: preparing")
        terraform.init()
        plan = terraform.plan(folder / PLAN_FILE)
        self.say(f"{cluster.name}: creating {plan.added} resources")
        (folder / APPLYING_MARK).touch()
        terraform.apply(plan)
        (folder / APPLYING_MARK).unlink()
        return _report_reader(terraform, self.access, cluster.region)

    def _wait(
        self, cluster: ProbeCluster, reader: ReportReader, max_usd: float, rented: float, latest: list[Report]
    ) -> None:
        """`latest` ends with the last report that could be read."""
        patience = Patience(
            first_node_seconds=min(_NO_CAPACITY_SECONDS, self.first_report_seconds),
            first_report_seconds=self.first_report_seconds,
            total_seconds=cluster.max_seconds + self.first_report_seconds,
            max_usd=max_usd,
        )
        up, failed, shown = time.monotonic(), 0, ""
        while True:
            try:
                latest.append(reader.report())
                failed = 0
            except AwsFailed as error:
                failed += 1
                if failed == _FAILED_LOOKS:
                    raise
                self.say(f"{cluster.name}: {error}")
            if latest and latest[-1].finished:
                return
            now = time.monotonic()
            verdict = reason_to_give_up(
                latest[-1] if latest else Report(),
                patience,
                nodes=cluster.nodes,
                elapsed_seconds=now - up,
                usd=cluster.highest_hourly_usd * (now - rented) / 3600,
            )
            if verdict:
                raise verdict
            line = status(latest[-1], cluster.nodes) if latest else shown
            if line != shown:
                self.say(f"{cluster.name}: {line}")
                shown = line
            time.sleep(self.poll_seconds)

    def _keep(self, records: Sequence[Mapping[str, Any]], identity: Identity, *, usd: float) -> None:
        rows, failures = measurements_of(records, identity.instance_type, identity.precision, identity.image)
        for reason in failures:
            self.say(f"{identity.instance_type}: {reason}")
        self.keep([identity.mark(row) for row in rows], usd)


def _report_reader(terraform: Workspace, access: Access, region: str) -> ReportReader:
    outputs = terraform.outputs()
    return ReportReader(
        client=access.clients(region),
        region=region,
        run_id=str(outputs["run_id"].value),
        bucket=str(outputs["results_bucket"].value),
        group=str(outputs["autoscaling_group_name"].value),
    )
