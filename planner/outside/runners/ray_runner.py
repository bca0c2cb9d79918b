"""Probes on a Ray cluster that is there: one actor per node, which runs the unchanged script under torchrun."""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import InputError, ScavError
from planner.inputs import Measurement, Ran
from planner.outside import assets
from planner.outside.runners.container import failed_last
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import Script, measurement_of, probe_environment, torchrun_of_node
from planner.outside.runners.noise_state import NoiseState
from planner.outside.runners.ray_cluster import NodeLost, RayCluster, ray_cluster
from planner.outside.runners.shared_with_probes import ray_node
from planner.outside.what_ran import ran_elsewhere
from planner.probing import Probe

_MORE_TRIES = 2
_POLL_SECONDS = 1.0
_GRACE_SECONDS = 15.0  # for the other nodes, once one has failed
_END_SECONDS = 30.0  # for a node to say that time ran out
_MOST_BYTES = 200 << 20
_LEFT_OUT = frozenset({".git", ".venv", ".terraform", "__pycache__", "scav-probes", "scav-online"})
_KILLED = re.compile(r"Signal 9 \(SIGKILL\)")  # by torchrun, of one of its processes


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRunner:
    """Runs one probe after the other, each in a placement group of its own that is gone afterwards."""

    cluster: RayCluster
    script: Script
    archive: bytes
    timeout_seconds: float
    patience_seconds: float
    say: Callable[[str], None]
    interrupts: Interrupts = field(default_factory=Interrupts)
    windows: int = 8
    window_steps: int = 20
    noise_state: NoiseState | None = None

    @classmethod
    @contextmanager
    def connected(
        cls,
        address: str,
        placements: Iterable[tuple[int, int]],
        script: Script,
        timeout_seconds: float,
        interrupts: Interrupts,
        *,
        patience_seconds: float,
        noise_state: NoiseState | None,
        say: Callable[[str], None],
    ) -> Iterator[RayRunner]:
        archive = packed(script.folder, script.command)
        with ray_cluster(address) as cluster:
            if "torch" not in cluster.software:
                raise ScavError("the Ray cluster's Python has no PyTorch: install torch on its nodes")
            for nodes, workers in placements:
                cluster.room_for(nodes, workers)
            yield cls(
                cluster=cluster,
                script=script,
                archive=archive,
                timeout_seconds=timeout_seconds,
                patience_seconds=patience_seconds,
                interrupts=interrupts,
                noise_state=noise_state,
                say=say,
            )

    def ran(self) -> Ran:
        return ran_elsewhere(self.script.folder, self.script.command, self.cluster.software, self.cluster.machines)

    def run(self, probe: Probe, *, reference_batch: int, measure_noise: bool) -> Measurement:
        """Again where a node was lost; what was measured before is in the file already."""
        for _ in range(_MORE_TRIES):
            try:
                return self._try(probe, reference_batch, measure_noise)
            except NodeLost as lost:
                self.say(f"{lost}: probing again")
        return self._try(probe, reference_batch, measure_noise)

    def _try(self, probe: Probe, reference_batch: int, measure_noise: bool) -> Measurement:
        room = self.cluster.room_for(probe.nodes, probe.gpus_per_node)
        with (
            self.cluster.losses(),
            self.cluster.gang(room, self.archive, self.patience_seconds, self.interrupts, self.say) as nodes,
            tempfile.TemporaryDirectory(prefix="scav-probe-") as folder,
        ):
            running = self._started(probe, nodes, reference_batch, measure_noise)
            ended, failed = self._wait(running)
            output, log = Path(folder) / "probe.json", Path(folder) / "log.txt"
            log.write_bytes(b"".join(ended[node].log for node in failed_last(probe.nodes, failed) if node in ended))
            record = next((ended[node].record for node in sorted(ended) if ended[node].record is not None), None)
            if record is not None:
                output.write_bytes(record)
            elif failed is not None and _KILLED.search(log.read_text(encoding="utf-8", errors="replace")):
                raise NodeLost("a process of the script was killed from outside (signal 9)")
            self._keep_state(ended.get(0))
            code = ended[failed].code if failed is not None else 0 if len(ended) == probe.nodes else None
            row = measurement_of(probe, output, code, log, self.timeout_seconds)
        return row.model_copy(update={"software": {**row.software, "ray": self.cluster.software.get("ray", "unknown")}})

    def _started(self, probe: Probe, nodes: Sequence[Any], reference_batch: int, measure_noise: bool) -> list[Any]:
        about = self._answers([node.about.remote() for node in nodes])
        arguments = self.script.arguments(probe, reference_batch)
        state = self.noise_state.file.read_bytes() if self.noise_state and self.noise_state.file.exists() else None
        shared = self.cluster.ray.put(state)
        running = []
        for rank, (node, there) in enumerate(zip(nodes, about, strict=True)):
            launcher = torchrun_of_node(there.python, probe, rank, about[0].address, about[0].free_port)
            folder = Path(there.folder)
            output, state_file = folder / "probe.json", self._state_inside(folder)
            environment = {
                **probe_environment(
                    probe,
                    reference_batch,
                    folder / "checkpoints",
                    output,
                    self.windows,
                    self.window_steps,
                    measure_noise,
                    self.script,
                    self.noise_state and self.noise_state._replace(file=state_file),
                ),
                **(dict.fromkeys(_INTERFACES, there.interface) if there.interface else {}),
            }
            wants = rank == 0 and state is None and self.noise_state is not None
            running.append(
                node.run.remote(
                    *([*launcher, *arguments], environment, self.timeout_seconds, str(output), str(state_file)),
                    *(shared, wants),
                )
            )
        return running

    def _answers(self, asked: Sequence[Any]) -> list[Any]:
        while self.cluster.ray.wait(asked, num_returns=len(asked), timeout=_POLL_SECONDS)[1]:
            self.interrupts.raise_if_received()
        return list(self.cluster.ray.get(asked))

    def _wait(self, running: Sequence[Any]) -> tuple[dict[int, Any], int | None]:
        """What the nodes say that have ended, and the first that failed. One that is lost raises."""
        ray = self.cluster.ray
        ended: dict[int, Any] = {}
        failed = None
        deadline = time.monotonic() + self.timeout_seconds + _END_SECONDS
        while len(ended) < len(running) and time.monotonic() < deadline:
            self.interrupts.raise_if_received()
            pending = [task for node, task in enumerate(running) if node not in ended]
            for task in ray.wait(pending, num_returns=len(pending), timeout=_POLL_SECONDS)[0]:
                node = running.index(task)
                ended[node] = ray.get(task)
                if ended[node].code != 0 and failed is None:
                    failed = node
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        return ended, failed

    def _state_inside(self, folder: Path) -> Path:
        """Its ending says how it is read."""
        return folder / f"noise-state{self.noise_state.file.suffix if self.noise_state else ''}"

    def _keep_state(self, first: Any) -> None:
        """From the first node, whose first process wrote it: every later probe gets it."""
        if self.noise_state is not None and first is not None and first.noise_state is not None:
            self.noise_state.file.write_bytes(first.noise_state)


_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def packed(folder: Path, command: Sequence[str]) -> bytes:
    """The script's folder and the probes, for every node to unpack."""
    is_inside = (folder / command[0]).resolve().is_relative_to(folder.resolve())
    if not is_inside or Path(command[0]).is_absolute():
        raise InputError("must be named from the job's folder on, which is all that nodes get", file=command[0])
    stream, total = io.BytesIO(), 0
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for root, name in ((folder, ray_node.SCRIPT), (assets.probes_parent() / "probes", "probes")):
            for path, inside in _files(root):
                total += path.stat().st_size
                if total > _MOST_BYTES:
                    much = f"holds more than {_MOST_BYTES >> 20} MiB, which every node would be sent"
                    raise InputError(f"{much}: keep data elsewhere, and name where nodes find it", file=str(folder))
                archive.add(path, arcname=f"{name}/{inside}")
    return stream.getvalue()


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_file():
                yield path, path.relative_to(root).as_posix()
