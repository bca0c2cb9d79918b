"""Probes in containers on this machine: one container is one node, with an address of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.inputs import Measurement, Ran
from planner.outside import assets
from planner.outside.runners.container_engine import ContainerCluster, Engine, Image, find_engine
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import Script, measurement_of, probe_environment, torchrun_of_node
from planner.outside.runners.noise_state import NoiseState
from planner.outside.what_ran import ran_here
from planner.probing import Probe

_SCRIPT_FOLDER = "/workspace"
_OUTPUT = Path("/tmp/scav-probe.json")  # noqa: S108 - the container's own, which any user can write to
_CHECKPOINTS = Path("/tmp/scav-checkpoints")  # noqa: S108
_STATE = Path("/tmp/scav-noise-state")  # noqa: S108
_PORT = 29500
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 15.0  # for the other nodes, once one has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRunner:
    """Runs one probe after the other, each on a network of its own that is gone afterwards."""

    engine: Engine
    image: Image
    script: Script
    timeout_seconds: float
    interrupts: Interrupts = field(default_factory=Interrupts)
    windows: int = 8
    window_steps: int = 20
    noise_state: NoiseState | None = None

    @classmethod
    def prepared(
        cls,
        script: Script,
        timeout_seconds: float,
        interrupts: Interrupts,
        *,
        image: str | None = None,
        base: str | None = None,
        noise_state: NoiseState | None = None,
    ) -> ContainerRunner:
        """Finds the engine, removes what a killed scav left behind, and builds the image unless one is named."""
        if image is not None and base is not None:
            raise InputError("is what an image is built on, and --image names one that is built", key="--base")
        engine = find_engine(os.environ)
        _check_readable(script.folder)
        if noise_state is not None and noise_state.is_given:
            _check_readable(noise_state.file)
        engine.remove_leftovers()
        with interrupts.heard():
            built = engine.image(image) if image else engine.build(assets.probes_parent() / "probes", base)
        return cls(
            engine=engine,
            image=built,
            script=script,
            timeout_seconds=timeout_seconds,
            interrupts=interrupts,
            noise_state=noise_state,
        )

    def ran(self) -> Ran:
        in_python = not self.script.writes_steps
        return ran_here(self.script.folder, self.script.command, in_python=in_python, image=self.image.digest)

    def run(self, probe: Probe, *, reference_batch: int, measure_noise: bool) -> Measurement:
        with tempfile.TemporaryDirectory(prefix="scav-probe-") as folder, self.engine.cluster() as cluster:
            arguments = self.run_arguments(probe, reference_batch, measure_noise=measure_noise)
            for node in range(probe.nodes):
                cluster.start(node, self.image, arguments, self.command(probe, node, reference_batch))
            with self.interrupts.heard():
                code, failed = _wait(cluster, probe.nodes, self.timeout_seconds)
            output, log = Path(folder) / "probe.json", Path(folder) / "log.txt"
            _collect(cluster, failed_last(probe.nodes, failed), output, log)
            if self.noise_state is not None and not self.noise_state.file.exists():
                # From the first node, whose first process wrote it: every later probe gets it read-only.
                self.engine.try_call("cp", f"{cluster.container(0)}:{self._state_inside}", str(self.noise_state.file))
            measurement = measurement_of(probe, output, code, log, self.timeout_seconds)
            return measurement.model_copy(update={"image_digest": self.image.digest})

    def run_arguments(self, probe: Probe, reference_batch: int, *, measure_noise: bool) -> list[str]:
        """The same for every node."""
        environment = {
            **probe_environment(
                probe,
                reference_batch,
                _CHECKPOINTS,
                _OUTPUT,
                self.windows,
                self.window_steps,
                measure_noise,
                self.script,
                self.noise_state and self.noise_state._replace(file=self._state_inside),
            ),
            "GLOO_SOCKET_IFNAME": "eth0",  # as both engines call a container's only interface
        }
        return [
            *("--mount", f"type=bind,source={self.script.folder.resolve()},target={_SCRIPT_FOLDER},readonly"),
            *self._state_mount(),
            *("--workdir", _SCRIPT_FOLDER),
            *("--security-opt", "label=disable"),  # SELinux would hide the folder; relabelling it is not ours to do
            *("--shm-size", "1g"),  # data loaders pass batches through shared memory, 64 MB by default
            *_user_arguments(self.engine.name, os.getuid(), os.getgid()),
            *(part for name, value in environment.items() for part in ("--env", f"{name}={value}")),
        ]

    @property
    def _state_inside(self) -> Path:
        """Its ending says how it is read."""
        return _STATE.with_suffix(self.noise_state.file.suffix if self.noise_state else "")

    def _state_mount(self) -> list[str]:
        if self.noise_state is None or not self.noise_state.file.exists():
            return []
        return ["--mount", f"type=bind,source={self.noise_state.file},target={self._state_inside},readonly"]

    def command(self, probe: Probe, node: int, reference_batch: int) -> list[str]:
        arguments = self.script.arguments(probe, reference_batch)
        if self.script.writes_steps:
            return ["python3", "-m", "probes.follow", *arguments]
        return [*torchrun_of_node("python3", probe, node, "node-0", _PORT), *arguments]


def _user_arguments(engine: str, user: int, group: int) -> list[str]:
    """The caller, who can read the script's folder; for root, the image's own user, who has no rights here."""
    if user == 0:
        return []
    keep = ["--userns", "keep-id"] if engine == "podman" else []
    return [*keep, "--user", f"{user}:{group}"]


def _check_readable(path: Path) -> None:
    """A folder or file that is to be mounted."""
    needed = 0o005 if path.is_dir() else 0o004
    if os.getuid() == 0 and path.stat().st_mode & needed != needed:
        change = "o+rx" if path.is_dir() else "o+r"
        raise InputError(f"root's alone, and the container's user is another: chmod {change} it", file=str(path))
    if "," in str(path.resolve()):
        raise InputError("a path with a comma in it cannot be mounted", file=str(path))


def _wait(cluster: ContainerCluster, nodes: int, timeout_seconds: float) -> tuple[int | None, int | None]:
    """The exit code and the node it is of: the first that failed, or 0 for all; None when time ran out."""
    deadline = time.monotonic() + timeout_seconds
    command = [cluster.engine.name, "wait"]
    waiting = {
        node: subprocess.Popen(
            [*command, cluster.container(node)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )
        for node in range(nodes)
    }  # fmt: skip
    first_failure: tuple[int, int] | None = None
    try:
        while waiting and time.monotonic() < deadline:
            for node, process in list(waiting.items()):
                if process.poll() is not None:
                    code = _exit_code(waiting.pop(node))
                    if code != 0 and first_failure is None:
                        first_failure = code, node
                        deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            time.sleep(_POLL_SECONDS if waiting else 0)
    finally:
        for process in waiting.values():
            process.kill()
            process.communicate()
    if first_failure is not None:
        return first_failure
    return (None, None) if waiting else (0, None)


def _exit_code(process: subprocess.Popen[str]) -> int:
    said = process.communicate()[0].strip()
    return int(said) if said.isdigit() else 1


def failed_last(nodes: int, failed: int | None) -> list[int]:
    """The order in which logs are read: the first node that failed has the last word, not those it took along."""
    return sorted(range(nodes), key=lambda node: (node == failed, node))


def _collect(cluster: ContainerCluster, nodes: Sequence[int], output: Path, log: Path) -> None:
    """The record, which the first process writes, or any that ran out of memory; and what everybody said."""
    with log.open("w", encoding="utf-8") as stream:
        for node in nodes:
            said = cluster.engine.try_call("logs", cluster.container(node))
            stream.write(said.stdout + said.stderr)
    for node in sorted(nodes):
        if not output.exists():
            cluster.engine.try_call("cp", f"{cluster.container(node)}:{_OUTPUT}", str(output))
