"""A rented cluster always goes, and what it measured stays: with a Terraform that only notes what it is asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import AwsFailed, ScavError, TerraformInterrupted
from planner.inputs.measurements import Measurement
from planner.outside.aws import Access
from planner.outside.runners.aws import cluster as cluster_module
from planner.outside.runners.aws import teardown
from planner.outside.runners.aws.cluster import IDENTITY_FILE, ClusterRunner, Identity, ProbingOutcome
from planner.outside.runners.aws.report import ClusterFailed, Report
from planner.outside.runners.interrupts import Interrupted, Interrupts
from planner.outside.terraform.workspace import Output, PlanFile
from planner.probing.probe_clusters import ProbeCluster

CLUSTER = ProbeCluster(
    instance_type="g5.xlarge",
    region="us-east-1",
    zone="use1-az1",
    nodes=1,
    gpus_per_node=1,
    gpu_batches=(32,),
    precision="bf16",
    spot=False,
    hourly_usd=1.0,
    highest_hourly_usd=2.0,
    startup_seconds=300.0,
    expected_seconds=400.0,
    max_seconds=600,
)
IDENTITY = Identity("g5.xlarge", "us-east-1", "bf16", None)
RECORD = {"outcome": "measured", "nodes": 1, "gpus_per_node": 1, "gpu_batch": 32, "step_seconds": 0.1}
RUNNING = Report(phases={"i-1": "running"}, records=[RECORD])
FINISHED = Report(phases={"i-1": "done"}, records=[RECORD], finished=True)

Step = Callable[[], None]


class NotedTerraform:
    """Does nothing, in order; a step can be made to do something else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.instead: dict[str, Step] = {}

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.instead.get(name, lambda: None)()

    def init(self) -> None:
        self._note("init")

    def plan(self, file: Path, **_options: object) -> PlanFile:
        self._note("plan")
        return PlanFile(path=file, has_changes=True, added=3, changed=0, removed=0, warnings=())

    def show(self, _plan: object) -> dict[str, Any]:
        return {}

    def apply(self, _plan: object) -> None:
        (self.folder / "terraform.tfstate").write_text("{}")
        self._note("apply")

    def push_state(self, _file: Path) -> None:
        self._note("push_state")

    def destroy(self) -> None:
        self._note("destroy")

    def outputs(self) -> dict[str, Output]:
        return {
            name: Output(value=name, sensitive=False) for name in ("run_id", "results_bucket", "autoscaling_group_name")
        }


class Reports:
    """What the nodes say, one look after the other; the last is repeated."""

    def __init__(self) -> None:
        self.coming: list[Report | Exception | Step] = [FINISHED]

    def report(self) -> Report:
        now = self.coming.pop(0) if len(self.coming) > 1 else self.coming[0]
        if isinstance(now, Exception):
            raise now
        if callable(now):
            now()
            return RUNNING
        return now

    def records(self) -> list[dict[str, Any]]:
        return [RECORD]


class Scene:
    def __init__(self, folder: Path, interrupts: Interrupts) -> None:
        self.folder = folder / "scav-probes" / "job-123456"
        self.folder.parent.mkdir()
        self.terraform = NotedTerraform(self.folder)
        self.reports = Reports()
        self.kept: list[Measurement] = []
        self.said: list[str] = []
        self.runner = ClusterRunner(
            access=Access(lambda _region: lambda _service: None, {}),
            interrupts=interrupts,
            say=self.said.append,
            keep=lambda rows, _usd: self.kept.extend(rows),
            first_report_seconds=60.0,
            poll_seconds=0.0,
        )

    def run(self, max_usd: float = 5.0) -> ProbingOutcome:
        return self.runner.run(CLUSTER, self.folder, {}, IDENTITY, max_usd)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with Interrupts() as interrupts:
        made = Scene(tmp_path, interrupts)
        for module in (teardown, cluster_module):
            monkeypatch.setattr(module, "open_workspace", lambda *_arguments, **_options: made.terraform)
        monkeypatch.setattr(cluster_module, "_report_reader", lambda *_arguments: made.reports)
        yield made


def get(number: signal.Signals) -> Step:
    return lambda: os.kill(os.getpid(), number)


def fail(error: Exception) -> Step:
    def step() -> None:
        raise error

    return step


def test_measures_keeps_and_destroys(scene: Scene) -> None:
    assert scene.run().failure is None
    assert scene.terraform.calls == ["init", "plan", "apply", "init", "destroy"]
    assert len(scene.kept) == 1
    assert not scene.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_while_it_measures_it_destroys_and_keeps_what_is_done(
    scene: Scene, number: signal.Signals
) -> None:
    scene.reports.coming = [RUNNING, get(number)]
    outcome = scene.run()
    assert isinstance(outcome.failure, Interrupted)
    assert number.name in str(outcome.failure)
    assert scene.terraform.calls[-1] == "destroy"
    assert len(scene.kept) == 1
    assert not scene.folder.exists()


def test_asked_to_stop_while_it_destroys_it_does_so_afterwards(scene: Scene) -> None:
    scene.terraform.instead["destroy"] = get(signal.SIGTERM)
    assert scene.run().failure is None
    assert not scene.folder.exists()
    with pytest.raises(Interrupted):
        scene.runner.interrupts.raise_if_received()


def test_asked_to_stop_between_two_clusters_the_second_is_not_rented(scene: Scene) -> None:
    get(signal.SIGTERM)()
    assert isinstance(scene.run().failure, Interrupted)
    assert scene.terraform.calls == []


def test_a_destroy_that_fails_says_so_and_can_be_repeated(scene: Scene) -> None:
    scene.terraform.instead["destroy"] = fail(ScavError("DependencyViolation"))
    with pytest.raises(ScavError, match=r"NOT destroyed .* scav probe .* --cleanup"):
        scene.run()
    assert len(scene.kept) == 1
    assert scene.folder.exists()
    scene.terraform.instead.clear()
    scene.runner.collect_and_destroy(scene.folder)
    assert not scene.folder.exists()


def test_our_own_mistakes_destroy_too(scene: Scene) -> None:
    scene.reports.coming = [fail(ZeroDivisionError())]
    with pytest.raises(ZeroDivisionError):
        scene.run()
    assert scene.terraform.calls[-1] == "destroy"


def test_a_network_that_is_gone_for_a_moment_ends_nothing(scene: Scene) -> None:
    lost = AwsFailed("no answer from AWS")
    scene.reports.coming = [lost, RUNNING, lost, lost, FINISHED]
    assert scene.run().failure is None
    scene.reports.coming = [RUNNING, lost]
    assert scene.run().failure is lost
    assert len(scene.kept) == 2


def test_the_cost_cap_ends_a_cluster(scene: Scene) -> None:
    scene.reports.coming = [RUNNING]
    outcome = scene.run(max_usd=0.0)
    assert isinstance(outcome.failure, ClusterFailed)
    assert "--max-cost" in str(outcome.failure)


def test_a_folder_that_cannot_be_written_is_one_line(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    full = ScavError("cannot write: no space left on device")
    monkeypatch.setattr(cluster_module.workspace_files, "write_workspace", lambda *_arguments: fail(full)())
    assert scene.run().failure is full
    assert scene.terraform.calls == []


def test_after_an_apply_that_was_interrupted_what_it_did_not_record_is_looked_for(scene: Scene) -> None:
    stopped = TerraformInterrupted("interrupted")
    scene.terraform.instead["apply"] = fail(stopped)
    assert scene.run().failure is stopped
    assert scene.terraform.calls == ["init", "plan", "apply", "init", "plan", "destroy"]
    assert not scene.folder.exists()


class TestLeftover:
    """After a scav that was killed."""

    @pytest.fixture
    def left(self, scene: Scene) -> Scene:
        scene.folder.mkdir()
        (scene.folder / IDENTITY_FILE).write_text(IDENTITY.text())
        return scene

    def test_what_it_measured_is_kept(self, left: Scene) -> None:
        (left.folder / "terraform.tfstate").write_text("{}")
        left.runner.collect_and_destroy(left.folder)
        assert [row.gpu_batch for row in left.kept] == [32]
        assert left.terraform.calls == ["init", "destroy"]
        assert not left.folder.exists()

    def test_an_unfinished_apply_is_remembered_until_all_it_created_is_found(self, left: Scene) -> None:
        (left.folder / teardown.APPLYING_MARK).touch()
        left.terraform.instead["plan"] = fail(ScavError("ExpiredToken"))
        with pytest.raises(ScavError, match="NOT destroyed"):
            left.runner.collect_and_destroy(left.folder)
        left.terraform.instead.clear()
        left.terraform.calls.clear()
        left.runner.collect_and_destroy(left.folder)
        assert left.terraform.calls == ["init", "plan", "destroy"]

    def test_a_state_that_could_not_be_saved_is_restored_first(self, left: Scene) -> None:
        (left.folder / "errored.tfstate").write_text("{}")
        left.runner.collect_and_destroy(left.folder)
        assert left.terraform.calls == ["init", "push_state", "destroy"]

    def test_one_that_created_nothing_just_goes(self, left: Scene) -> None:
        left.runner.collect_and_destroy(left.folder)
        assert left.terraform.calls == []
        assert not left.folder.exists()
