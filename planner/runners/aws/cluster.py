"""One probing cluster: rented, watched while it measures, and destroyed whatever happens."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from planner import store
from planner.errors import ScavError
from planner.probe_clusters import ProbeCluster
from planner.runners.aws.report import Correspondent, Patience, reason_to_give_up, status
from planner.runners.aws.teardown import (
    ENDING_SIGNALS,
    PLAN_FILE,
    ClientOfRegion,
    open_workspace,
    tear_down,
    workspace_values,
)
from planner.terraform import Workspace

_NO_CAPACITY_SECONDS = 120.0  # the group tries its other zones first


class Interrupted(ScavError):
    exit_code = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came back, what it cost, and why it ended early if it did."""

    records: list[dict[str, Any]]
    usd: float
    failure: ScavError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRunner:
    clients: ClientOfRegion
    say: Callable[[str], None]
    first_report_seconds: float
    poll_seconds: float

    def run(self, cluster: ProbeCluster, folder: Path, files: Mapping[str, str], max_usd: float) -> Measured:
        """Raises only when something may be left over; any other failure comes back with what was measured."""
        records: list[dict[str, Any]] = []
        failure: ScavError | None = None
        started = time.monotonic()
        with _one_interrupt() as be_deaf:
            try:
                try:
                    store.write_workspace(folder, files)
                    correspondent = self._rent(cluster, folder)
                    try:
                        self._wait(cluster, correspondent, max_usd, started)
                    finally:  # batch sizes that were done before it failed
                        records = _records(correspondent)
                finally:
                    be_deaf()
            except ScavError as error:
                failure = error
            finally:
                tear_down(folder, self.clients, say=self.say)
        usd = cluster.hourly_usd * (time.monotonic() - started) / 3600
        return Measured(records=records, usd=usd, failure=failure)

    def _rent(self, cluster: ProbeCluster, folder: Path) -> Correspondent:
        terraform = open_workspace(folder)
        self.say(f"{cluster.name}: preparing")
        terraform.init()
        plan = terraform.plan(folder / PLAN_FILE)
        self.say(f"{cluster.name}: creating {plan.added} resources")
        terraform.apply(plan)
        return _correspondent(terraform, self.clients)

    def _wait(self, cluster: ProbeCluster, correspondent: Correspondent, max_usd: float, started: float) -> None:
        patience = Patience(
            first_node_seconds=min(_NO_CAPACITY_SECONDS, self.first_report_seconds),
            first_report_seconds=self.first_report_seconds,
            total_seconds=cluster.max_seconds + self.first_report_seconds,
            max_usd=max_usd,
        )
        shown = ""
        while not (report := correspondent.report()).finished:
            elapsed = time.monotonic() - started
            usd = cluster.highest_hourly_usd * elapsed / 3600
            failure = reason_to_give_up(report, patience, nodes=cluster.nodes, elapsed_seconds=elapsed, usd=usd)
            if failure:
                raise failure
            if (now := status(report, cluster.nodes)) != shown:
                self.say(f"{cluster.name}: {now}")
                shown = now
            time.sleep(self.poll_seconds)


def salvaged(folder: Path, clients: ClientOfRegion) -> tuple[list[dict[str, Any]], str]:
    """What the cluster of a scav that died had measured, and its instance type."""
    instance_type = str(workspace_values(folder)["instance_type"])
    try:
        return _records(_correspondent(open_workspace(folder), clients)), instance_type
    except (ScavError, KeyError):  # it never got so far
        return [], instance_type


def _correspondent(terraform: Workspace, clients: ClientOfRegion) -> Correspondent:
    outputs, region = terraform.outputs(), str(workspace_values(terraform.folder)["region"])
    return Correspondent(
        client=clients(region),
        region=region,
        run_id=str(outputs["run_id"].value),
        bucket=str(outputs["results_bucket"].value),
        group=str(outputs["autoscaling_group_name"].value),
    )


def _records(correspondent: Correspondent) -> list[dict[str, Any]]:
    try:
        return correspondent.records()
    except ScavError:
        return []


@contextlib.contextmanager
def _one_interrupt() -> Iterator[Callable[[], None]]:
    """The first signal that asks scav to stop is raised, once; none is after `be_deaf`, when the cluster goes down."""
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}

    def be_deaf() -> None:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def stop(number: int, _frame: FrameType | None) -> None:
        be_deaf()
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, stop)
    try:
        yield be_deaf
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
