"""A Ray cluster that is there: reaching it, room on its nodes for a probe, and leaving nothing on it.

Ray ends what a driver has started when the driver is gone, actors, placement groups and the name that only one probe
can have; so a scav that is killed leaves nothing either, and what its actors started is ended by their keepers.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from planner.errors import InputError, ScavError, one_line
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.shared_with_probes import ray_node
from planner.outside.terraform.process import ENDING_SIGNALS
from planner.units import counted

NEAREST = "auto"  # the cluster that RAY_ADDRESS names, or that runs on this machine
OPTION = "--ray-address"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})")
_ANSWER_SECONDS = 10.0
_START_SECONDS = 120.0  # of a worker, on a busy machine
_OTHERS_END_SECONDS = 10.0  # until Ray has noticed that a scav which was killed is gone
_POLL_SECONDS = 1.0
_SETTINGS = b"\x04"  # the kind of the first frame that either side of HTTP/2, which Ray speaks, sends
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
_NAMESPACE, _WATCH = "scav", "probe"


class Room(NamedTuple):
    """What a probe needs of each of its nodes; one process takes a GPU where there are any, and a CPU."""

    nodes: int
    processes: int
    gpus: int

    @property
    def words(self) -> str:
        each = counted(self.gpus, "GPU") if self.gpus else counted(self.processes, "CPU")
        return f"{counted(self.nodes, 'node')} with {each}{' each' if self.nodes > 1 else ''}"


class NodeLost(ScavError):
    """A node or a process on it went away, through no fault of the script's."""


class RayCluster:
    """`software`: of its Python, which the script runs with."""

    def __init__(self, ray: Any, software: dict[str, str]) -> None:
        self.ray, self.software = ray, software

    @property
    def machines(self) -> list[str]:
        """The kinds of its nodes: how fast a script is depends on them."""
        kinds = {
            f"{node.get('GPU', 0):g} GPUs {_accelerators(node)} {node.get('CPU', 0):g} CPUs" for node in self._nodes()
        }
        return sorted(kinds)

    def room_for(self, nodes: int, processes: int) -> Room:
        """Or one line on why there can be none."""
        there = self._nodes()
        has_gpus = any(node.get("GPU", 0) for node in there)
        room = Room(nodes, processes, processes if has_gpus else 0)
        enough = [node for node in there if node.get("CPU", 0) >= processes and node.get("GPU", 0) >= room.gpus]
        if len(enough) < nodes:
            what = "GPU" if has_gpus else "CPU"
            most = [counted(int(node.get(what, 0)), what) for node in there]
            raise ScavError(f"a probe needs {room.words}, and the Ray cluster has {_listed(most)}")
        return room

    @contextlib.contextmanager
    def gang(
        self, room: Room, archive: bytes, patience_seconds: float, interrupts: Interrupts, say: Callable[[str], None]
    ) -> Iterator[list[Any]]:
        """An actor on each of so many nodes; gone afterwards, with all that they have started."""
        util = importlib.import_module("ray.util")
        bundle = {"CPU": float(room.processes)} | ({"GPU": float(room.gpus)} if room.gpus else {})
        group = util.placement_group([bundle] * room.nodes, strategy="STRICT_SPREAD")
        nodes: list[Any] = []
        try:
            _wait_for(group, room, patience_seconds, interrupts, say)
            packed = self.ray.put(archive)
            strategies = importlib.import_module("ray.util.scheduling_strategies")
            for index in range(room.nodes):
                place = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
                needs = {"num_cpus": room.processes, "num_gpus": room.gpus, "scheduling_strategy": place}
                nodes.append(self.ray.remote(ray_node.RayNode).options(**needs).remote(packed))
            yield nodes
        finally:
            for node in nodes:
                self.ray.kill(node)
            util.remove_placement_group(group)

    @contextlib.contextmanager
    def losses(self) -> Iterator[None]:
        """What Ray says when something is gone, as one line."""
        exceptions = importlib.import_module("ray.exceptions")
        try:
            yield
        except exceptions.RayTaskError as error:  # in our own part on the node
            raise ScavError(f"on a node of the Ray cluster: {one_line(str(error.cause))}") from None
        except exceptions.RayError as error:
            raise NodeLost(f"the Ray cluster lost a node or what ran on it ({type(error).__name__})") from None

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]


@contextlib.contextmanager
def ray_cluster(address: str) -> Iterator[RayCluster]:
    """Connected, for one probe run at a time."""
    if importlib.util.find_spec("ray") is None:
        raise ScavError("--on ray needs Ray here: pip install 'scav-planner[ray]'")
    _refuse_silence(address)
    ray = importlib.import_module("ray")
    with _own_signals():
        try:
            ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray raises whatever it was that went wrong inside of it
            raise ScavError(_refusal(address, error)) from None
    try:
        ray.cloudpickle.register_pickle_by_value(ray_node)  # nodes have no scav
        watch = _the_only_one(ray)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # of lost nodes Ray tells there whatever it is told
                yield RayCluster(ray, _software(ray, watch))
        finally:
            ray.kill(watch)
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself waits for minutes for somebody to answer."""
    if address == NEAREST:
        return
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise InputError(f"write host:6379, ray://host:10001 or {NEAREST}", key=OPTION)
    try:
        with socket.create_connection((found["host"].strip("[]"), int(found["port"])), _ANSWER_SECONDS) as there:
            if not os.environ.get("RAY_USE_TLS"):
                there.sendall(_HELLO)
                if there.recv(9)[3:4] != _SETTINGS:
                    raise OSError(0, "something else answers there")
    except OSError as error:
        reason = (error.strerror or str(error) or "no answer").lower()
        raise ScavError(f"no Ray cluster at {one_line(address)}: {reason}; start one (ray start --head)") from None


def _refusal(address: str, error: Exception) -> str:
    said = one_line(" ".join(str(error).split()) or type(error).__name__)
    if "mismatch" in said:
        return f"Ray here and at {one_line(address)} must be of one version: {said}"
    if address == NEAREST and isinstance(error, ConnectionError):  # its words name an option of its own
        return f"no Ray cluster runs on this machine: start one (ray start --head), or name one by {OPTION}"
    return f"no Ray cluster at {one_line(address)}: {said}; start one (ray start --head), or name it by {OPTION}"


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """ray.init takes SIGTERM for itself, and would end scav without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _the_only_one(ray: Any) -> Any:
    """Two probes at once would measure each other."""
    deadline = time.monotonic() + _OTHERS_END_SECONDS
    while True:
        try:
            return ray.remote(ray_node.RayWatch).options(name=_WATCH, num_cpus=0).remote()
        except ValueError:
            if time.monotonic() > deadline:
                raise ScavError("another probe is running on this Ray cluster: wait for it, or stop it") from None
            time.sleep(_POLL_SECONDS)


def _software(ray: Any, watch: Any) -> dict[str, str]:
    try:
        return dict(ray.get(watch.software.remote(), timeout=_START_SECONDS))
    except ray.exceptions.RayError as error:
        raise ScavError(f"the Ray cluster starts no worker ({type(error).__name__}): see ray status there") from None


def _wait_for(
    group: Any, room: Room, patience_seconds: float, interrupts: Interrupts, say: Callable[[str], None]
) -> None:
    """Others may be using the cluster. Ray cannot bear an exception inside of its calls, so signals are asked for."""
    start = time.monotonic()
    told = False
    while not group.wait(_POLL_SECONDS):
        interrupts.raise_if_received()
        waited = time.monotonic() - start
        if waited > patience_seconds:
            raise ScavError(f"the Ray cluster had no room for {room.words} within {patience_seconds:.0f} s")
        if waited > _ANSWER_SECONDS and not told:
            told = True
            say(f"waiting for {room.words}: the Ray cluster is in use, or has lost a node")


def _accelerators(resources: dict[str, float]) -> str:
    prefix = "accelerator_type:"
    return " ".join(sorted(name.removeprefix(prefix) for name in resources if name.startswith(prefix)))


def _listed(words: Sequence[str]) -> str:
    """`2 nodes of 0 GPUs`, or each kind of node for itself."""
    kinds = dict.fromkeys(words)
    return ", ".join(f"{counted(list(words).count(kind), 'node')} of {kind}" for kind in kinds) or "no node"
