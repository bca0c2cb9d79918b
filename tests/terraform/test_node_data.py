"""What the job reads, on a node: copied, mounted or on a volume; and the disks that the node brings along."""

import os
from pathlib import Path

import pytest
from agent_node import ADDRESS, ME, RUN
from stand_ins import wait_until

TRAIN = {"name": "train", "gib": 1, "copy": "s3://somebody/imagenet/train", "mount": None, "volume": None}
LUSTRE = {"name": "text", "gib": 0, "copy": None, "mount": "fs-0.fsx.us-east-1.amazonaws.com@tcp:/abcd", "volume": None}
VOLUME = {"name": "disk", "gib": 0, "copy": None, "mount": None, "volume": "/dev/sdf"}
# Written down, and then as if it had been done; /proc/mounts stays as it is.
RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >> "$WORLD/calls"\n'


@pytest.fixture
def node(world):
    for name in ("mount", "mkfs.ext4", "mdadm"):
        (world.root / "bin" / name).write_text(RECORDER)
        (world.root / "bin" / name).chmod(0o755)
    (world.root / "bin" / "blockdev").write_text('#!/bin/sh\nstat -c %s "$2"\n')
    (world.root / "bin" / "blockdev").chmod(0o755)
    (world.root / "disks").mkdir()
    return world


def store(node, key, text="x"):
    (node.root / "s3" / key).parent.mkdir(parents=True, exist_ok=True)
    (node.root / "s3" / key).write_text(text)


def give_disk(node, number, gib):
    """As udev names it: twice, and its partitions."""
    device = node.root / f"nvme{number}n1"
    device.touch()
    os.truncate(device, gib << 30)  # sparse
    name = node.root / "disks" / f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}"
    for link in (name, Path(f"{name}_1"), Path(f"{name}_1-part1")):
        link.symlink_to(device)
    return device


def test_data_from_s3_is_on_every_node_before_the_job_starts_and_is_only_read(node):
    store(node, "somebody/imagenet/train/a/1.tar", "one")
    node.set_run(data=[TRAIN], environment={**RUN["environment"], "SCAV_DATA_DIR": "/data"})
    node.set_job("cp ../data/train/a/1.tar seen.pt")
    node.run("train")
    assert (node.stored / "checkpoints" / "seen.pt").read_text() == "one"
    assert (node.stored / "_data" / "i-me").exists()
    (command,) = node.containers
    assert f"{node.root}/state/data:/data:ro" in command
    assert "SCAV_DATA_DIR=/data" in command


def test_a_place_without_files_ends_the_run_with_its_name(node):
    node.set_run(data=[TRAIN], max_failures=2)
    node.run_as_systemd_does("train")
    assert "s3://somebody/imagenet/train has no files" in node.why_failed
    assert node.scaled_to_zero
    assert node.containers == []


def test_data_that_does_not_fit_is_not_begun(node):
    store(node, "somebody/imagenet/train/1.tar")
    node.set_run(data=[TRAIN | {"gib": 1 << 40}], max_failures=1)
    node.run_as_systemd_does("train")
    assert "the data needs 1099511627776 GiB and this node's disk has " in node.why_failed
    assert not (node.root / "state/data/train").exists()


def test_a_node_that_still_copies_is_waited_for(node):
    store(node, "somebody/imagenet/train/1.tar")
    other = ME | {"InstanceId": "i-other", "LaunchTime": "2025-01-01T00:00:09+00:00"}
    node.set_nodes(ME, other)
    node.set_run(data=[TRAIN], node_count=2, data_seconds=20, environment=RUN["environment"] | {"SCAV_DATA_DIR": "/d"})
    with node.start("train") as agent:
        wait_until((node.stored / "_data" / "i-me").exists)
        wait_until(lambda: "1 of 2 nodes are there" in agent.stdout.readline())
        assert node.containers == []
        (node.stored / "_data" / "i-other").touch()
        wait_until(lambda: node.containers)
        agent.kill()
        agent.communicate()


def test_lustre_and_volumes_are_mounted_for_reading(node):
    volumes = [
        {"DeviceName": "/dev/sda1", "Ebs": {"VolumeId": "vol-0root"}},
        {"DeviceName": "/dev/sdf", "Ebs": {"VolumeId": "vol-0da7a"}},
    ]
    disk = node.root / "disks" / "nvme-Amazon_Elastic_Block_Store_vol0da7a"
    disk.touch()
    node.set_nodes(ME | {"BlockDeviceMappings": volumes})
    node.set_run(data=[LUSTRE, VOLUME], environment=RUN["environment"] | {"SCAV_DATA_DIR": "/d"})
    node.run("train")
    assert [call for call in node.calls if call.startswith("mount ")] == [
        f"mount -t lustre -o ro,flock fs-0.fsx.us-east-1.amazonaws.com@tcp:/abcd {node.root}/state/data/text",
        f"mount -o ro {disk} {node.root}/state/data/disk",
    ]
    assert ADDRESS in str(node.containers)


# The node's own disks.


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([250], ["mkfs.ext4 -q -F -E nodiscard {0}", "mount -o noatime {0} {state}"], id="one"),
        pytest.param(
            [150, 150],
            [
                "mdadm --create /dev/md/scav --run --level=0 --raid-devices=2 {0} {1}",
                "mkfs.ext4 -q -F -E nodiscard /dev/md/scav",
                "mount -o noatime /dev/md/scav {state}",
            ],
            id="several-as-one",
        ),
        pytest.param([125], [], id="smaller-than-the-root-volume"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_node_works_on_its_own_disks_where_they_are_as_large_as_the_root_volume(node, sizes, expected):
    disks = [give_disk(node, number, gib) for number, gib in enumerate(sizes)]
    node.run("train")
    calls = [call for call in node.calls if call.split()[0] in ("mkfs.ext4", "mount", "mdadm")]
    assert calls == [text.format(*disks, state=node.root / "state") for text in expected]
    assert (node.stored / "_SUCCESS").exists()


def test_disks_that_cannot_be_used_are_not_waited_for(node):
    give_disk(node, 0, 250)
    (node.root / "bin" / "mkfs.ext4").write_text("#!/bin/sh\necho 'is apparently in use by the system' >&2; exit 1\n")
    assert "the local disks are not used: is apparently in use by the system" in node.run("train")
    assert (node.stored / "_SUCCESS").exists()
