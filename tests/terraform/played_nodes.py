"""Nodes for what Terraform applied on the mock AWS: each instance of a group gets a machine that runs its user data.

The user data is what the launch template has, the agent in it is the real one, its AWS is the mock AWS, and what it
starts as a container is really run: results and heartbeats come back through S3, and the group scales to 0.

    with played_nodes(mock_aws, root=tmp_path, job=EXAMPLES / "digits-cnn") as nodes:
        ...  # terraform apply, wait for results, terraform destroy

Machines are namespaces: one network for all, folders and processes for each. Their addresses are those that the mock
AWS gave them. An instance that is terminated loses its machine, and so does everything when the block ends.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import played_machine
from mock_aws import MockAws
from namespace_node import require_namespaces
from played_aws import answered_aws
from stand_ins import World, no_disks, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
NETWORK = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "ip link set lo up && echo up && cat"]
MACHINE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
WATCH_SECONDS = 0.1
MOST_USER_DATA_BYTES = 16384

# What the job's image would have: this repository's Python with torch, and the probes. No more threads than processes.
IMAGE_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": str(REPOSITORY),
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/tmp",  # noqa: S108 - the image's own
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


@contextlib.contextmanager
def played_nodes(
    aws: MockAws,
    *,
    root: Path,
    job: Path | str = "exit 0",
    run_id: str | None = None,
    environment: dict[str, str] | None = None,
    silent: bool = False,
    pull_error: str = "",
    poll_seconds: float = 0.5,
) -> Iterator[PlayedNodes]:
    """Plays the nodes of one run, or of every run that comes.

    `job` is the folder in which the container's command is run (/workspace in the container), or a shell script that
    is run instead of the command. `silent` nodes exist and never say anything. With `pull_error` no node gets the
    image, and docker says that.
    """
    require_namespaces()
    played = {
        "folder": str(job if isinstance(job, Path) else root),
        "script": None if isinstance(job, Path) else job,
        "environment": IMAGE_ENVIRONMENT | (environment or {}),
        "pull_error": pull_error,
    }
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_shared_network())
        socket = stack.enter_context(answered_aws(aws, lambda instance: nodes.lose(instance)))
        machine_environment = {"AWS_SOCKET": str(socket), "SCAV_POLL_SECONDS": str(poll_seconds)}
        boots = None if silent else Boots(network=network, environment=machine_environment, played=played)
        nodes = PlayedNodes(aws, root, run_id, boots)
        stack.enter_context(nodes.watched())
        try:
            yield nodes
        except BaseException:
            print(nodes.logs())
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Boots:
    """What all machines have in common."""

    network: int
    environment: dict[str, str]
    played: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class PlayedNode:
    instance_id: str
    address: str
    group: str
    user_data: str
    world: World
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        return self.world.root

    @property
    def state(self) -> Path:
        """The node's /var/lib/scav, also when the node is gone."""
        return self.root / "machine" / "var-lib" / "now" / "scav"

    @property
    def containers(self) -> list[list[str]]:
        """The arguments of every `docker run`."""
        return self.world.containers

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def logs(self) -> str:
        files = [*sorted(self.root.glob("*.log")), self.root / "calls"]
        texts = [
            f"--- {self.instance_id} {file.name}\n{file.read_text(errors='replace')}" for file in files if file.exists()
        ]
        return "\n".join(texts)

    def boot(self, boots: Boots) -> None:
        played_machine.write_commands(self.root / "bin")
        (self.root / "played.json").write_text(json.dumps(boots.played))
        (self.root / "user-data").write_text(self.user_data, encoding="utf-8")
        environment = {
            **boots.environment,
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "WORLD": str(self.root),
            "INSTANCE": self.instance_id,
            "ADDRESS": self.address,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{self.address}",
            "SCAV_MEMORY_DIR": str(self.root / "memory"),
            "SCAV_NOTES_DIR": str(self.root / "notes"),
            **no_disks(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        enter = ["nsenter", "--target", str(boots.network), "--user", "--net", "--preserve-credentials"]
        with (self.root / "boot.log").open("w") as log:
            self.process = subprocess.Popen(
                [*enter, *MACHINE, sys.executable, played_machine.__file__, str(self.root)],
                env=environment,
                cwd=self.root / "work",
                stdin=subprocess.PIPE,  # which the machine reads: it ends with this process
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()


class PlayedNodes(Sequence[PlayedNode]):
    """Every node that ever was, in the order in which they came."""

    def __init__(self, aws: MockAws, root: Path, run_id: str | None, boots: Boots | None) -> None:
        self.aws, self.root, self.run_id, self.boots = aws, root, run_id, boots
        self._nodes: list[PlayedNode] = []
        self._failure: BaseException | None = None
        self._ended = threading.Event()

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: Any) -> Any:
        return self._nodes[index]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self) >= count)

    def lose(self, instance_id: str) -> None:
        """The instance is terminated: by hand, by its own shutdown, by AWS."""
        self.aws.client("ec2").terminate_instances(InstanceIds=[instance_id])

    def interrupt(self, node: PlayedNode) -> None:
        """A spot notice; the agent looks every five seconds. The instance stays until somebody loses it."""
        node.world.tell("spot/instance-action", '{"action": "terminate", "time": "2030-01-01T00:00:00Z"}')

    def logs(self) -> str:
        return "\n".join(node.logs() for node in self)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            for node in self:
                node.kill()
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> None:
        try:
            while not self._ended.wait(WATCH_SECONDS):
                self._look()
        except Exception as error:  # shown by the test that the thread belongs to
            self._failure = error

    def _look(self) -> None:
        instances = {instance["InstanceId"]: instance for instance in self._instances()}
        known = {node.instance_id for node in self}
        for node in self:
            if node.instance_id not in instances and node.alive:
                node.kill()
        for name in [name for name in instances if name not in known]:
            group = self._group_of(instances[name])
            if group is not None:
                self._nodes.append(self._started(instances[name], group))

    def _instances(self) -> list[dict[str, Any]]:
        """Running, of the run, and launched by a group."""
        filters = [
            {"Name": "instance-state-name", "Values": ["running"]},
            {"Name": "tag-key", "Values": ["aws:autoscaling:groupName"]},
            {"Name": "tag:scav-run", "Values": [self.run_id or "*"]},
        ]
        reservations = self.aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
        found = [instance for reservation in reservations for instance in reservation["Instances"]]
        return sorted(found, key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))

    def _group_of(self, instance: dict[str, Any]) -> dict[str, Any] | None:
        """None for a moment at first: moto launches instances before it says that there is a group."""
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        name = tags["aws:autoscaling:groupName"]
        found = self.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        return next(iter(found["AutoScalingGroups"]), None)

    def _started(self, instance: dict[str, Any], group: dict[str, Any]) -> PlayedNode:
        node = PlayedNode(
            instance_id=instance["InstanceId"],
            address=instance["PrivateIpAddress"],
            group=group["AutoScalingGroupName"],
            user_data=self._user_data(group, instance["InstanceType"]),
            world=World(self.root / instance["InstanceId"], instance),
        )
        if self.boots is not None:
            node.boot(self.boots)
        return node

    def _user_data(self, group: dict[str, Any], instance_type: str) -> str:
        """As cloud-init finds it, of the version that the group names for this type."""
        template = _launch_template(group, instance_type)
        versions = self.aws.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=[str(template["Version"])]
        )
        raw = base64.b64decode(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"])
        assert len(raw) <= MOST_USER_DATA_BYTES, f"EC2 refuses {len(raw)} bytes of user data"
        return (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode()


def _launch_template(group: dict[str, Any], instance_type: str) -> dict[str, Any]:
    if "LaunchTemplate" in group:
        return group["LaunchTemplate"]
    policy = group["MixedInstancesPolicy"]["LaunchTemplate"]
    overrides = [one for one in policy.get("Overrides", []) if one.get("InstanceType") == instance_type]
    own = overrides[0].get("LaunchTemplateSpecification") if overrides else None
    return own or policy["LaunchTemplateSpecification"]


@contextlib.contextmanager
def _shared_network() -> Iterator[int]:
    """A network that only the machines have, held by a process; yields its id."""
    with subprocess.Popen(NETWORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        try:
            yield holder.pid
        finally:
            holder.stdin.close()
