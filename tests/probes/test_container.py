"""Probes in containers: the image from its Containerfile, two containers as two nodes, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import machine_image
import pytest
from click.testing import Result
from patience import PATIENCE_SECONDS

from planner.errors import ScavError
from planner.outside.runners.container_engine import BUILD_ARGUMENTS, LABEL, RUN_ARGUMENTS, Engine, find_engine

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "digits-cnn"
PREFIX = "localhost/scav-test"
# What some machines do not let a container raise, said as a user of such a machine would.
LIMITS = "--ulimit nofile=1024:1024 --ulimit nproc=4096:4096"
SCRIPT = """
import os, socket, torch
import torch.distributed as dist
from torch import nn
assert os.getuid() != 0, "root"
assert not os.access(".", os.W_OK), "the script's folder can be written to"
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("gloo")
    addresses = [None] * dist.get_world_size()
    dist.all_gather_object(addresses, socket.gethostbyname(socket.gethostname()))
    assert len(set(addresses)) == 2, addresses
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x = torch.randn(int(os.environ["SCAV_GPU_BATCH"]), 64)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), x[:, :8].argmax(dim=1)).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One that runs here; where there is none the tests are skipped, in CI they fail."""
    limits = {RUN_ARGUMENTS: LIMITS, BUILD_ARGUMENTS: LIMITS}
    try:
        found = find_engine(limits)
    except ScavError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    yield found
    found.remove_leftovers()
    of_the_containerfile = f"label=org.opencontainers.image.title={LABEL}"
    built = found.call("images", "--all", "--quiet", "--filter", of_the_containerfile).split()
    names = found.call("images", "--format", "{{.Repository}}").splitlines()
    found.try_call("rmi", "--force", *dict.fromkeys(built), *(name for name in names if name.startswith(PREFIX)))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (RUN_ARGUMENTS, BUILD_ARGUMENTS):
        monkeypatch.setenv(name, LIMITS)


@pytest.fixture(scope="module")
def base_with_torch(engine: Engine) -> str:
    return machine_image.import_base(engine.name, f"{PREFIX}-torch", with_torch=True)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o755)
    text = (EXAMPLE / "scav.yaml").read_text()
    (folder / "scav.yaml").write_text(text.replace("64..256", "64"))
    (folder / "train.py").write_text(SCRIPT)
    return folder


def is_clean(engine: Engine) -> bool:
    return engine.labelled() == ([], [])


@pytest.mark.usefixtures("limits")
def test_two_containers_run_one_probe_together(
    engine: Engine, base_with_torch: str, job: Path, run_scav: Callable[..., Result]
) -> None:
    first = run_scav("probe", job, "--on", "container", "--nodes", "2", "--base", base_with_torch)
    assert first.exit_code == 0, first.stderr
    rows = [json.loads(line) for line in (job / "measurements.jsonl").read_text().splitlines()]
    assert [(row["instance_type"], row["nodes"], row["gpus_per_node"]) for row in rows] == [
        ("local", 1, 1),
        ("local", 2, 1),
    ]
    assert all(row["image_digest"] == engine.image(LABEL).digest for row in rows)
    assert rows[1]["allreduce"][0]["bytes"] == rows[1]["gradient_bytes"]
    assert rows[0]["noise"]["state"] == rows[1]["noise"]["state"]  # handed from the first probe's container to the next
    assert is_clean(engine)

    again = run_scav("probe", job, "--on", "container", "--nodes", "2", "--image", LABEL)
    assert "2 measured before" in again.stderr
    assert len((job / "measurements.jsonl").read_text().splitlines()) == 2

    (job / "train.py").write_text(
        "import os\nassert os.environ['RANK'] == '0', 'only the second node fails'\n" + SCRIPT
    )
    (job / "measurements.jsonl").unlink()
    failed = run_scav("probe", job, "--on", "container", "--nodes", "2", "--image", LABEL)
    assert failed.exit_code == 1
    assert "AssertionError: only the second node fails" in failed.stderr
    assert (
        failed.stderr.splitlines()[-1]
        == "Error: probe of 2 x 1 workers at local batch 32: the script failed with exit code 1"
    )
    assert is_clean(engine)


def test_the_image_keeps_the_torch_of_its_base_and_has_a_user_of_its_own(engine: Engine, base_with_torch: str) -> None:
    image = engine.build(REPOSITORY / "probes", base_with_torch)
    described = json.loads(engine.call("image", "inspect", image.id))[0]["Config"]
    assert described["User"] == "10001:10001"
    assert not [setting for setting in described["Env"] if setting.startswith("PIP_")]
    program = "import sys, probes.run, torch; print(torch.__version__)"
    import torch

    said = engine.call("run", "--rm", *engine.run_arguments, image.id, "python3", "-c", program)
    assert said == torch.__version__


def test_torch_is_installed_where_it_is_absent(engine: Engine, tmp_path: Path) -> None:
    """By pip from wheels that are mounted for the build; stand-ins, because the real one takes minutes."""
    base = machine_image.import_base(engine.name, f"{PREFIX}-python", with_torch=False)
    wheels = tmp_path / "wheels"
    wheels.mkdir(mode=0o755)
    for name, version in (("torch", "2.13.0"), ("numpy", "2.3.5")):
        write_stand_in(wheels, name, version)
    mounted = Engine(
        name=engine.name,
        run_arguments=engine.run_arguments,
        build_arguments=(
            *engine.build_arguments,
            *("--volume", f"{wheels}:/wheels:ro"),
            *("--build-arg", "PIP_FIND_LINKS=/wheels", "--build-arg", "PIP_NO_INDEX=1"),
        ),
    )
    image = mounted.build(REPOSITORY / "probes", base)
    program = "import torch, numpy, pathlib; print(torch.__version__, pathlib.Path('/wheels').exists())"
    said = engine.call("run", "--rm", *engine.run_arguments, image.id, "python3", "-c", program)
    assert said.split()[0] == "2.13.0"
    with pytest.raises(ScavError, match="No matching distribution found for torch==0") as caught:
        Engine(name=engine.name, build_arguments=(*mounted.build_arguments, "--build-arg", "TORCH_VERSION=0")).build(
            REPOSITORY / "probes", base
        )
    assert "\n" not in str(caught.value)


def write_stand_in(folder: Path, name: str, version: str) -> None:
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = '{version}'\n")
        wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_nothing_is_left_when_scav_is_stopped(
    engine: Engine, base_with_torch: str, job: Path, ending: signal.Signals
) -> None:
    """At once after Ctrl-C, at the start of the next run after kill -9."""
    image = engine.build(REPOSITORY / "probes", base_with_torch)
    (job / "train.py").write_text("import time\ntime.sleep(3600)\n")
    scav = subprocess.Popen(
        [sys.executable, "-m", "planner", "probe", job, "--on", "container", "--image", image.id],
        env={**os.environ, RUN_ARGUMENTS: LIMITS},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not engine.call("ps", "--filter", f"label={LABEL}", "--quiet") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not is_clean(engine)
    scav.send_signal(ending)
    said = scav.communicate(timeout=PATIENCE_SECONDS)[1]
    if ending is signal.SIGINT:
        assert (scav.returncode, said.splitlines()[-1]) == (130, "Error: interrupted by SIGINT")
    else:
        assert not is_clean(engine)
        engine.remove_leftovers()
    assert is_clean(engine)


def test_two_scavs_do_not_remove_each_others_containers(engine: Engine) -> None:
    other = subprocess.Popen([shutil.which("sleep") or "sleep", "3600"])
    network = f"{LABEL}-{other.pid}-0123abcd"
    try:
        engine.call("network", "create", "--label", LABEL, network)
        engine.remove_leftovers()
        assert engine.labelled()[1] == [network]
    finally:
        other.kill()
        other.wait()
    engine.remove_leftovers()
    assert is_clean(engine)
