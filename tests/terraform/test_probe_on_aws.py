"""`scav probe --on aws` against the mock AWS: the real command, Terraform and provider, and nodes that run for real.

Whatever happens on the way, nothing is left: no instance, group, bucket or role.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from played_nodes import played_nodes
from stand_ins import PATIENCE_SECONDS, wait_until

from planner.inputs.measurements import Measurement
from planner.outside.runners.aws.teardown import PROBES_FOLDER, leftovers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPE = "g4dn.xlarge"
SLEEPS = "sleep 1000"
PATIENTLY = ("--max-duration", "1h", "--patience", "1h")  # torch takes minutes to start on a busy machine

# Steps of about a millisecond: what is tested is the way there and back.
TRAIN = """\
import os
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    inputs = torch.randn(int(os.environ["SCAV_GPU_BATCH"]), 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

# For which probes on one and two nodes are worth their price.
LONG_TRAINING = {"epochs: 9": "epochs: 9000000", "deadline: 1h": "deadline: 5000h", "budget: $5": "budget: $10000"}

pytestmark = pytest.mark.slow


class Command:
    """`scav probe JOB --on aws`, as a user starts it."""

    def __init__(self, job: Path, environment: dict[str, str]) -> None:
        self.job = job
        self.environment = {**environment, "SCAV_POLL_SECONDS": "0.3"}

    def start(self, *options: str, command: str = "probe") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "planner", command, str(self.job), *options],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_on_aws(self, *options: str) -> subprocess.Popen[str]:
        return self.start("--on", "aws", "--instance-type", TYPE, "--yes", *options)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return finished(self.start_on_aws(*options))

    def tune(self, *options: str) -> subprocess.CompletedProcess[str]:
        return finished(self.start("--on", "aws", "--instance-type", TYPE, "--yes", *options, command="tune"))

    @property
    def measurements(self) -> list[dict]:
        file = self.job / "measurements.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def run_ids(self) -> list[str]:
        return [path.name for path in leftovers(self.job / PROBES_FOLDER)]


def finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    stdout, stderr = process.communicate(timeout=2 * PATIENCE_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def scav(tmp_path, attached_terraform, mock_aws):
    with command("digits-cnn", "64..256", "64", tmp_path, attached_terraform, mock_aws) as scav:
        yield scav


@pytest.fixture
def llama(tmp_path, attached_terraform, mock_aws):
    with command("tiny-llama", "16..64", "32", tmp_path, attached_terraform, mock_aws) as scav:
        yield scav


@contextlib.contextmanager
def command(example, batches, batch, tmp_path, attached_terraform, mock_aws):
    """Of an example with one batch, on the mock AWS; afterwards nothing may be left there."""
    job = Path(shutil.copytree(EXAMPLES / example, tmp_path / example))
    answers = mock_aws.answers(instance_type=TYPE)
    file = job / "scav.yaml"
    text = file.read_text().replace(batches, batch)
    run = f"run:\n  ami: {answers['ami_id']}\n  image: {answers['container_image']}"
    network = f"network:\n  vpc: {answers['vpc_id']}\n  subnets: {json.dumps(answers['subnet_ids'])}"
    file.write_text(text.replace("run:", f"{network}\n\n{run}"))
    yield Command(job, {**os.environ, **attached_terraform.environment})
    assert mock_aws.resources(f"{example}-") == {}
    assert not (job / PROBES_FOLDER).exists()


def test_two_nodes_measure_together_and_nothing_is_left(scav, mock_aws, tmp_path):
    script = tmp_path / "image"
    script.mkdir()
    (script / "train.py").write_text(TRAIN)
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=script) as nodes:
        result = scav.run("--nodes", "2", *PATIENTLY)
    assert result.returncode == 0, result.stderr
    assert len(nodes) == 2
    (row,) = scav.measurements
    jsonschema.validate(row, Measurement.model_json_schema())
    assert (row["instance_type"], row["nodes"], row["gpu_batch"]) == (TYPE, 2, 32)
    assert row["probe_usd"] > 0
    assert "everything is destroyed" in result.stdout

    again = scav.run("--nodes", "2")
    assert "1 cluster on aws, 1 measured before" in again.stderr
    assert len(scav.measurements) == 1


def test_two_nodes_share_a_model_as_asked_and_their_measurement_says_so(llama, mock_aws, tmp_path):
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=EXAMPLES / "tiny-llama"):
        result = llama.run("--nodes", "2", "--strategy", "fsdp,recompute=full", *PATIENTLY)
    assert result.returncode == 0, result.stderr
    (row,) = llama.measurements
    assert (row["instance_type"], row["nodes"], row["gpu_batch"]) == (TYPE, 2, 16)
    assert row["strategy"] == {"sharding": "fsdp", "recompute": "full"}
    again = llama.run("--nodes", "2", "--strategy", "fsdp,recompute=full")
    assert "1 cluster on aws, 1 measured before" in again.stderr
    other = llama.run("--nodes", "2", "--strategy", "ddp", "--dry-run")
    assert "1 cluster on aws, 0 measured before" in other.stderr


def test_tuning_rents_one_cluster_after_the_other_and_goes_on_where_it_was(scav, mock_aws, tmp_path):
    file = scav.job / "scav.yaml"
    text = file.read_text()
    for old, new in LONG_TRAINING.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    script = tmp_path / "image"
    script.mkdir()
    (script / "train.py").write_text(TRAIN)
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=script) as nodes:
        result = scav.tune("--patience", "1h")
    assert result.returncode == 0, result.stderr
    assert {row["nodes"] for row in scav.measurements} == {1, 2}
    assert len(nodes) == 3
    assert "best so far" in result.stderr
    assert "no further probe is expected to repay its price" in result.stderr
    assert f"Next: scav plan {scav.job}" in result.stdout

    again = scav.tune()  # nothing is left to measure, so nothing is rented
    assert again.returncode == 0, again.stderr
    assert len(scav.measurements) == 2


def test_ctrl_c_during_apply_destroys(scav, mock_aws):
    process = scav.start_on_aws()
    wait_until(lambda: scav.run_ids and mock_aws.resources(scav.run_ids[0]))
    process.send_signal(signal.SIGINT)
    result = finished(process)
    assert result.returncode == 130, result.stderr


def test_killed_while_measuring_the_next_command_cleans_up(scav, mock_aws, tmp_path):
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=SLEEPS) as nodes:
        process = scav.start_on_aws("--nodes", "1")
        nodes.wait_for(1)
        process.kill()
        finished(process)
        assert len(scav.run_ids) == 1
        result = finished(scav.start("--cleanup"))
    assert result.returncode == 0, result.stderr
    assert "1 cluster of earlier probes destroyed" in result.stderr


def test_killed_together_with_its_terraform_everything_is_found_again(scav, mock_aws):
    """Terraform that is killed does not record what it is just creating: its names are looked for in AWS."""
    process = scav.start_on_aws("--nodes", "1")
    wait_until(lambda: scav.run_ids and "auto scaling groups" in mock_aws.resources(scav.run_ids[0]))
    for child in processes_in(scav.job / PROBES_FOLDER / scav.run_ids[0]):
        os.kill(child, signal.SIGKILL)
    process.kill()
    finished(process)
    result = finished(scav.start("--cleanup"))
    assert result.returncode == 0, result.stderr


def processes_in(folder: Path) -> list[int]:
    """By their working folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append(int(process.name))
    return found


def test_nodes_that_never_report_are_given_up(scav, mock_aws, tmp_path):
    with played_nodes(mock_aws, root=tmp_path / "nodes", silent=True):
        result = scav.run("--nodes", "1", "--patience", "12s")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "Error: 1 of 1 nodes did not report within 12 s"


def test_a_script_that_fails_on_the_node_shows_its_last_words(scav, mock_aws, tmp_path):
    with played_nodes(mock_aws, root=tmp_path / "nodes", job="echo 'ValueError: no data here'; exit 3"):
        result = scav.run("--nodes", "1")
    assert result.returncode == 1
    assert "a node failed: ValueError: no data here" in result.stderr.splitlines()[-1]


def test_without_capacity_it_says_what_aws_says(scav, mock_aws):
    with mock_aws.without_capacity():
        result = scav.run("--nodes", "1", "--patience", "12s")
    assert result.returncode == 1
    assert f"We currently do not have sufficient {TYPE} capacity" in result.stderr
    assert result.stderr.splitlines()[-1] == "Error: nothing was measured"


def test_denied_results_are_named(scav, mock_aws, tmp_path):
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=SLEEPS), mock_aws.s3_denied():
        result = scav.run("--nodes", "1")
    assert result.returncode == 1
    assert "AWS denies s3:ListObjectsV2 in us-east-1" in result.stderr.splitlines()[-1]
