"""A marked record, on its way from a probe to the plan, passes the files that docs/architecture.md names."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import Result

from planner.cli.probe_aws import AwsNotebook
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs
from planner.outside.aws import Access
from planner.outside.runners import local
from planner.outside.runners.aws.cluster import ClusterRunner, Identity
from planner.outside.runners.aws.report import ReportReader
from planner.outside.runners.interrupts import Interrupts

torch = pytest.importorskip("torch")

from probes import sweep, trial  # noqa: E402
from probes.cluster import Place  # noqa: E402
from probes.session import ProbeFinished, Session  # noqa: E402
from probes.settings import Settings  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
STEP_SECONDS, PROBE_USD, GPU_BATCH, TOO_LARGE = 0.1234567, 1.234567, 61, 72  # nothing else has these
IDENTITY = Identity("g5.xlarge", "us-east-1", "bf16", None, run_key="0" * 12, run_command="train.py")
JOB = """\
name: small
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 1M
  activation_bytes_per_sample: 60MB
  global_batch: 60..512
  target: {epochs: 9, reference_batch: 256}
constraints:
  instance_types: ["g5.xlarge"]
  nodes: 1
  spot: never
run:
  command: [train.py]
"""


def named(heading: str) -> list[str]:
    """The files of one list of the page."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, flags=re.MULTILINE)


def holds_the_mark(value: object, depth: int = 4) -> bool:
    """The record as an object, as a dictionary or as text, alone or among others."""
    if isinstance(value, Measurement):
        return value.step_seconds == STEP_SECONDS
    if isinstance(value, str | bytes):
        return str(STEP_SECONDS) in str(value)
    if isinstance(value, PlanInputs) or depth == 0:
        return False
    if isinstance(value, Mapping):
        return value.get("step_seconds") == STEP_SECONDS
    if isinstance(value, list | tuple):
        return any(holds_the_mark(item, depth - 1) for item in value[:9])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(holds_the_mark(getattr(value, field.name, None), depth - 1) for field in dataclasses.fields(value))
    return False


@cache
def file_of(path: str) -> str | None:
    """Within the repository; None for what is not scav's."""
    name = path.removeprefix(f"{REPOSITORY}/")
    return name if name.startswith(("planner/", "probes/")) else None


class Walk:
    """Which files of the package were called, and in which the record was seen, in the order of the first time."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.held: list[str] = []

    def watch(self, frame: FrameType, event: str, value: object) -> None:
        name = file_of(frame.f_code.co_filename)
        if name is None or event not in ("call", "return") or frame.f_code.co_name == "<module>":
            return
        if name not in self.called:
            self.called.append(name)
        if name not in self.held and holds_the_mark([value, *frame.f_locals.values()]):
            self.held.append(name)


@contextmanager
def watched() -> Iterator[Walk]:
    walk = Walk()
    sys.setprofile(walk.watch)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def finish_a_probe(settings: Settings) -> None:
    """What the session does once its steps are done; these took as long as the mark says."""
    session = Session(settings, Place(rank=0, world_size=1, local_rank=0, local_world_size=1), started=0.0)
    session.instrument.model = torch.nn.Linear(1000, 1000, bias=False)
    session.instrument.optimizer = torch.optim.SGD(session.instrument.model.parameters())
    session.startup_seconds, session.peak_memory_bytes = 214.0, 4_000_000_000
    for kind in (session._with_sync.finished, session._with_sync.waits):
        kind += [[STEP_SECONDS] * 5] * 2
    with pytest.raises(ProbeFinished):
        session._finish(None)


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    (tmp_path / "scav.yaml").write_text(JOB)
    (tmp_path / "train.py").touch()
    return tmp_path


class Bucket:
    """The one file that a rented node left in S3."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def get_paginator(self, _name: str) -> Bucket:
        return self

    def paginate(self, **_where: str) -> list[dict[str, Any]]:
        return [{"Contents": [{"Key": f"run/results/node-0/{sweep.RESULTS_FILE}"}]}]

    def get_object(self, **_where: str) -> dict[str, io.BytesIO]:
        return {"Body": io.BytesIO(self.content)}


def measure_on_a_rented_cluster(folder: Path) -> None:
    output, results = folder / "probe.json", folder / "results.jsonl"
    finish_a_probe(settings_for(output, folder))
    report = trial._recorded(output)
    assert report is not None
    found = sweep.Results(results, Place(0, 1, 0, 1), [GPU_BATCH, TOO_LARGE])
    found.add(GPU_BATCH, report)
    found.add(TOO_LARGE, trial.Report(trial.OUT_OF_MEMORY))
    clients: Callable[[str], Any] = lambda _service: Bucket(results.read_bytes())  # noqa: E731
    reader = ReportReader(client=clients, region="us-east-1", run_id="run", bucket="bucket", group="group")
    with Interrupts() as interrupts:
        runner = ClusterRunner(
            access=Access(lambda _region: clients, {}),
            interrupts=interrupts,
            say=lambda _line: None,
            keep=AwsNotebook(folder).add,
            first_report_seconds=60.0,
            poll_seconds=0.0,
        )
        runner._keep(reader.records(), IDENTITY, usd=PROBE_USD)


def settings_for(output: Path, folder: Path) -> Settings:
    return Settings(
        gpu_batch=GPU_BATCH,
        accumulation_steps=1,
        checkpoint_folder=folder / "checkpoints",
        output=output,
        windows=2,
        window_steps=5,
        measure_noise=False,
    )


def test_from_a_rented_cluster_to_the_plan(job_folder: Path, run_scav: Callable[..., Result]) -> None:
    with watched() as walk:
        measure_on_a_rented_cluster(job_folder)
    assert walk.held == named("From a rented cluster into the file")
    (line,) = (job_folder / "measurements.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["gpu_batch"], record["out_of_memory_at"], record["probe_usd"]) == (GPU_BATCH, TOO_LARGE, PROBE_USD)

    with watched() as walk:
        result = run_scav("plan", job_folder, "--out", job_folder / "workspace")
    assert result.exit_code == 0, result.output
    assert walk.held == named("From the file into the models, and beside the plan")
    numbers = named("As numbers into the plan")
    assert [name for name in walk.called if name in numbers] == numbers
    plan = json.loads((job_folder / "workspace" / "scav.plan.json").read_text())
    assert plan["evidence"]["probe_usd"] == pytest.approx(PROBE_USD, rel=1e-5)
    assert plan["choice"]["gpu_batch"] < TOO_LARGE
    if plan["choice"]["gpu_batch"] == GPU_BATCH:
        assert plan["estimate"]["step_seconds"]["p50"] == pytest.approx(STEP_SECONDS, rel=0.1)


def test_from_this_machine_into_the_file(
    job_folder: Path, run_scav: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_in(_runner: object, _command: object, environment: Mapping[str, str], _log: object) -> int:
        """Instead of torchrun, which would run the probe in another process."""
        output = Path(environment["SCAV_PROBE_OUTPUT"])
        finish_a_probe(
            dataclasses.replace(settings_for(output, job_folder), gpu_batch=int(environment["SCAV_GPU_BATCH"]))
        )
        return 0

    monkeypatch.setattr(local.LocalRunner, "_run", stand_in)
    with watched() as walk:
        result = run_scav("probe", job_folder, "--workers", "1")
    assert result.exit_code == 0, result.output
    assert walk.held == named("From this machine into the file")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:planner|probes)/[\w/]+\.py)`", PAGE))))
def test_every_file_that_the_page_names_exists(path: str) -> None:
    assert (REPOSITORY / path).is_file()
