"""What a container engine is told, in order, without one."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError, ScavError, ScriptFailed
from planner.outside.runners import container
from planner.outside.runners.container import ContainerRunner
from planner.outside.runners.container_engine import Engine, find_engine
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import Script
from planner.outside.runners.noise_state import NoiseState
from planner.probing.probe_plan import LOCAL, Probe

PROBE = Probe(LOCAL, 2, 1, 32, 1, "fp32")
RECORD = {
    "outcome": "measured",
    "nodes": 2,
    "gpus_per_node": 1,
    "gpu_batch": 32,
    "step_seconds": 0.1,
}
# Writes down what it is asked, and answers as an engine would.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$1 $2" in
    "info "*) exit "${INFO_CODE:-0}" ;;
    "image inspect") echo "sha256:1234 somewhere/image@sha256:abcd" ;;
    "inspect --format") echo 10.9.8.7 ;;
    "wait "*) echo "${NODE_CODE:-0}" ;;
    "logs "*) echo "ValueError: no data" >&2 ;;
    "cp "*) [ -z "$NODE_CODE" ] && cp "$RECORD" "$3" ;;
    "ps --all") [ -z "$THERE" ] || echo "$THERE" ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A `podman` on PATH; returns what it was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "podman").write_text(STAND_IN)
    (folder / "podman").chmod(0o755)
    (tmp_path / "record.json").write_text(json.dumps(RECORD))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr("planner.outside.runners.container_engine.ENGINES", ("podman",))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("RECORD", str(tmp_path / "record.json"))
    return lambda: (tmp_path / "calls").read_text().splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o755)
    return Script(folder=folder, command=("train.py", "--fast"))


def prepared(script: Script, **chosen: Any) -> ContainerRunner:
    return ContainerRunner.prepared(script, 600.0, Interrupts(), **chosen)


def test_two_nodes_are_started_measured_and_removed(
    engine: Callable[[], list[str]], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAV_CONTAINER_ARGS", "--gpus 'all of them'")
    monkeypatch.setenv("SCAV_CONTAINER_BUILD_ARGS", "--network none")
    measurement = prepared(script, base="debian:12").run(PROBE, reference_batch=64, measure_noise=False)
    assert (measurement.nodes, measurement.instance_type) == (2, LOCAL)
    assert measurement.image_digest == "sha256:abcd"
    calls = engine()
    verbs = [call.split()[0] for call in calls if not call.startswith(("wait", "logs", "cp", "ps"))]
    assert verbs == ["info", "network", "build", "image", "network", "run", "inspect", "run", "network"]
    (build,) = [call for call in calls if call.startswith("build")]
    assert "--build-arg BASE=debian:12 --network none" in build
    first, second = (call for call in calls if call.startswith("run"))
    assert "--hostname node-0" in first
    assert "--add-host" not in first
    assert "--hostname node-1 --add-host node-0:10.9.8.7" in second
    for node, call in enumerate((first, second)):
        assert f"type=bind,source={script.folder},target=/workspace,readonly" in call
        assert "--env SCAV_GPU_BATCH=32" in call
        assert "--env SCAV_PROBE_NOISE=0" in call
        assert call.endswith(
            f"--gpus all of them 1234 python3 -m torch.distributed.run --nnodes=2 --node-rank={node} "
            "--master-addr=node-0 --master-port=29500 --nproc-per-node=1 -m -- probes.run train.py --fast"
        )
    assert calls[-1].startswith("network rm scav-probe-")


def test_a_failed_node_ends_the_probe_with_its_own_words_and_removes_it(
    engine: Callable[[], list[str]], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = prepared(script, image="mine")
    monkeypatch.setenv("NODE_CODE", "1")
    with pytest.raises(ScriptFailed, match=r"the script failed with exit code 1$") as failed:
        runner.run(PROBE, reference_batch=64, measure_noise=False)
    assert failed.value.said_before.splitlines()[-1] == "ValueError: no data"
    assert engine()[-1].startswith("network rm")


def test_a_state_is_copied_out_of_the_first_probe_and_mounted_in_the_next(
    engine: Callable[[], list[str]], script: Script, tmp_path: Path
) -> None:
    file = tmp_path / "state.pt"
    runner = dataclasses.replace(prepared(script, image="mine"), noise_state=NoiseState(file, is_given=False))
    inside = "/tmp/scav-noise-state.pt"  # noqa: S108 (the container's own)
    mount = f"--mount type=bind,source={file},target={inside},readonly"
    for _ in range(2):
        runner.run(PROBE._replace(nodes=1), reference_batch=64, measure_noise=True)
    first, second = (call for call in engine() if call.startswith("run"))
    assert f"--env SCAV_PROBE_NOISE_STATE={inside}" in first
    assert (mount in first, mount in second) == (False, True)
    (copied,) = [call for call in engine() if call.startswith("cp") and inside in call]
    assert copied.endswith(f"-0:{inside} {file}")


@pytest.mark.usefixtures("engine")
def test_a_checkpoint_that_the_container_s_user_cannot_read_is_refused(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    file = tmp_path / "last.ckpt"
    file.touch(mode=0o600)
    with pytest.raises(InputError, match=r"last\.ckpt: root's alone, .* chmod o\+r it"):
        prepared(script, image="mine", noise_state=NoiseState(file, is_given=True))
    file.chmod(0o604)
    prepared(script, image="mine", noise_state=NoiseState(file, is_given=True))


def test_time_runs_out(
    engine: Callable[[], list[str]], script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = prepared(script, image="mine")
    stand_in = tmp_path / "bin" / "podman"
    stand_in.write_text(STAND_IN.replace('echo "${NODE_CODE:-0}"', "exec sleep 3600"))
    monkeypatch.setattr(container, "_POLL_SECONDS", 0.01)
    short = ContainerRunner(engine=runner.engine, image=runner.image, script=script, timeout_seconds=0.3)
    with pytest.raises(ScavError, match="not finished after 0 s; raise --max-duration"):
        short.run(PROBE, reference_batch=64, measure_noise=False)
    assert engine()[-1].startswith("network rm")


def test_leftovers_of_dead_processes_are_removed_and_others_stay(
    engine: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = "scav-probe-999999999-aa-0", f"scav-probe-{os.getppid()}-bb-0"
    monkeypatch.setenv("THERE", f"{dead}\n{alive}\nscav-probe-of-somebody")
    find_engine({}).remove_leftovers()
    assert [call for call in engine() if call.startswith(("kill", "rm"))] == [
        f"kill {dead}",
        f"rm --force --volumes {dead}",
    ]


def test_steps_of_any_program_are_followed(script: Script) -> None:
    program = Script(folder=script.folder, command=("./train",), writes_steps=True)
    image = container.Image(id="1", digest="sha256:1")
    runner = ContainerRunner(engine=Engine(name="docker"), image=image, script=program, timeout_seconds=1.0)
    assert runner.command(PROBE._replace(nodes=1), 0, 32) == ["python3", "-m", "probes.follow", "./train"]


@pytest.mark.parametrize(
    ("engine_name", "user", "arguments"),
    [
        ("docker", 0, []),
        ("podman", 0, []),
        ("docker", 1000, ["--user", "1000:100"]),
        ("podman", 1000, ["--userns", "keep-id", "--user", "1000:100"]),
    ],
)
def test_a_container_runs_as_who_can_read_the_script(engine_name: str, user: int, arguments: list[str]) -> None:
    assert container._user_arguments(engine_name, user, 100) == arguments


def test_no_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ScavError, match=r"^no container engine: install Docker or Podman, or probe with --on local$"):
        find_engine({})


@pytest.mark.usefixtures("engine")
def test_an_engine_that_does_not_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFO_CODE", "1")
    with pytest.raises(ScavError, match="podman does not run: it said nothing; start one"):
        find_engine({})


@pytest.mark.usefixtures("engine")
def test_settings_that_cannot_be_split_are_named() -> None:
    with pytest.raises(InputError, match="SCAV_CONTAINER_ARGS: no closing quotation"):
        find_engine({"SCAV_CONTAINER_ARGS": "--label 'a"})


@pytest.mark.usefixtures("engine")
def test_an_image_and_a_base_exclude_each_other(script: Script) -> None:
    with pytest.raises(InputError, match="--base"):
        prepared(script, image="one", base="other")


def test_everything_of_probes_is_copied_by_name() -> None:
    """A folder in probes/ that the Containerfile does not name would be missing from the image."""
    probes = Path(__file__).parents[2] / "probes"
    copied = (probes / "Containerfile").read_text(encoding="utf-8")
    for folder in {file.parent.relative_to(probes) for file in probes.rglob("*.py")}:
        assert f"COPY {folder / '*.py'} {'/opt/scav/probes' / folder}/\n" in copied
