"""What every test may use: the command in process, a job file to start from, and an environment of its own."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from planner.cli import cli

REPOSITORY = Path(__file__).resolve().parents[1]

# Before numpy and torch are imported: their threads wait for each other in busy loops, which takes several times the
# processor time, and minutes where other work holds one of them up.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is, not whether the law holds. Who waits for the tests gets fewer
# examples, others every time; CI draws as many as are usual.
EXAMPLES = 100 if os.environ.get("CI") else 40
settings.register_profile(
    "scav", settings.default, max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("scav")

# A narrow search, so that planning it takes milliseconds.
JOB = """\
name: small
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  target:
    epochs: 90
    reference_batch: 256
constraints:
  deadline: 24h
  budget: $400
  instance_types: ["g5.*"]
  nodes: 1..2
"""

MEASUREMENT = (
    '{"instance_type": "g5.12xlarge", "nodes": 1, "gpus_per_node": 4, "gpu_batch": 64, '
    '"precision": "bf16", "step_seconds": 0.2}\n'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files, docs/commands.md, README.md")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Among the fast tests a file of slow ones is not even imported: what it needs takes seconds, in every process."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True, scope="session")
def _signals_end_what_the_tests_start() -> None:
    """Whoever runs the tests in the background or under nohup makes them, and all that they start, ignore these."""
    for number, usual in {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGTERM: signal.SIG_DFL,
    }.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Options come from SCAV_* too, and rich looks at the terminal's variables. Tests may probe beside each other."""
    for name in list(os.environ):
        if name.startswith("SCAV_") or name in {"COLUMNS", "FORCE_COLOR", "NO_COLOR"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path_factory.getbasetemp()))


@pytest.fixture
def run_scav(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """`run_scav("plan", "job.yaml")` in an empty folder; an exception that is no ScavError fails the test."""

    def run(*arguments: str | Path, cwd: Path = tmp_path) -> Result:
        monkeypatch.chdir(cwd)
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """`with full_disk(100):` no file grows beyond so many bytes: a real OSError, as late as a full disk's."""

    @contextlib.contextmanager
    def limited(most_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@pytest.fixture(scope="session")
def job_text() -> str:
    return JOB


@pytest.fixture(scope="session")
def measurement_line() -> str:
    """A line of measurements.jsonl that fits the small job."""
    return MEASUREMENT


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[..., Path]:
    """`write_job({"24h": "-24h"})` replaces text of the small job and writes it to scav.yaml."""

    def write(replacements: dict[str, str] | None = None, *, folder: Path = tmp_path) -> Path:
        text = JOB
        for old, new in (replacements or {}).items():
            assert text.count(old) == 1, f"{old!r} is not once in the job"
            text = text.replace(old, new)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "scav.yaml"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture(scope="session")
def planned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    (folder / "scav.yaml").write_text(JOB)
    arguments = ["plan", str(folder), "--out", str(folder / "scav-plan")]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    return folder / "scav-plan"


@pytest.fixture
def workspace(planned_once: Path, write_job: Callable[..., Path], tmp_path: Path) -> Path:
    """`scav-plan`, as `scav plan` of the small job writes it, beside that job."""
    write_job()
    return Path(shutil.copytree(planned_once, tmp_path / "scav-plan"))
