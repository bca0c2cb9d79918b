"""From a job file to a trained model without a question: planned, applied with no variable set, trained, destroyed."""

from __future__ import annotations

import json
import shutil

import pytest
from mock_aws import EXAMPLES, OVERRIDE, logs_of, plan_workspace
from played_nodes import played_nodes
from stand_ins import wait_until

RUN_ID = "digits-cnn-1"
NO_CHANGES = 0


@pytest.fixture
def workspace(tmp_path):
    """As `scav plan` writes it; the override is the tests' own and sets no variable of the plan."""
    plan_workspace(tmp_path / "w", "digits-cnn")
    (tmp_path / "w" / "test_override.tf").write_text(OVERRIDE)
    return tmp_path / "w"


@pytest.mark.slow
def test_the_example_applies_as_it_is_and_trains_from_its_packed_script(
    attached_terraform, mock_aws, workspace, tmp_path, run_scav, monkeypatch
):
    for name, value in attached_terraform.environment.items():
        monkeypatch.setenv(name, value)

    def watched() -> dict[str, object]:
        result = run_scav("watch", workspace, "--once")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def terraform(*words: str) -> str:
        result = attached_terraform.run(*words, "-no-color", "-input=false", cwd=workspace)
        assert result.returncode == NO_CHANGES, result.stdout + result.stderr
        return result.stdout

    mock_aws.connect_default_vpc()
    before = mock_aws.resources(RUN_ID)
    (tmp_path / "image").mkdir()  # with nothing in it: the script comes from S3
    terraform("init")
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=tmp_path / "image") as nodes:
        assert "Warning:" not in terraform("apply", "-auto-approve")
        outputs = json.loads(attached_terraform.run("output", "-json", cwd=workspace).stdout)
        bucket = outputs["checkpoint_bucket"]["value"]
        assert watched()["phase"] in ("waiting for nodes", "starting", "running", "succeeded")
        wait_until(lambda: {"_SUCCESS", "_FAILED"} & set(keys(mock_aws, bucket)))
        assert "_SUCCESS" in keys(mock_aws, bucket), nodes.logs()
        wait_until(lambda: mock_aws.desired_capacity(f"scav-{RUN_ID}") == 0)
        containers = [words for node in nodes for words in node.containers]
    assert all("/workspace" in words and "--entrypoint" in words for words in containers)
    assert {"_STARTED", "checkpoints/model.pt"} <= set(keys(mock_aws, bucket))
    after = watched()
    assert (after["phase"], after["nodes"]["up"], after["checkpoint"]["newest"]) == ("succeeded", 0, "model.pt")
    assert after["training"]["said"].startswith("epoch ")
    terraform("plan", "-detailed-exitcode")
    assert "instances" not in mock_aws.resources(RUN_ID)

    empty(mock_aws, bucket)
    terraform("destroy", "-auto-approve")
    assert mock_aws.resources(RUN_ID) == before | logs_of(RUN_ID)


@pytest.mark.slow
def test_data_in_s3_reaches_the_job_of_a_planned_workspace(attached_terraform, mock_aws, tmp_path):
    shutil.copytree(EXAMPLES / "digits-cnn", tmp_path / "job")
    job_file = tmp_path / "job" / "scav.yaml"
    data = "  data: [{name: train, uri: s3://somebodys-data/digits/, size: 1GB}]\n"
    job_file.write_text(job_file.read_text().replace("run:\n", f"run:\n{data}"))
    plan_workspace(tmp_path / "w", str(tmp_path / "job"))
    (tmp_path / "w" / "test_override.tf").write_text(OVERRIDE)
    s3 = mock_aws.client("s3")
    s3.create_bucket(Bucket="somebodys-data")
    s3.put_object(Bucket="somebodys-data", Key="digits/a/1.txt", Body=b"one")
    s3.put_object(Bucket="somebodys-data", Key="digits-of-others/2.txt", Body=b"two")

    def terraform(*words: str) -> None:
        result = attached_terraform.run(*words, "-no-color", "-input=false", cwd=tmp_path / "w")
        assert result.returncode == NO_CHANGES, result.stdout + result.stderr

    terraform("init")
    script = 'cp "$SCAV_DATA_DIR/train/a/1.txt" "$SCAV_CHECKPOINT_DIR/seen.pt"'
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=script) as nodes:
        terraform("apply", "-auto-approve")
        bucket = json.loads(attached_terraform.run("output", "-json", cwd=tmp_path / "w").stdout)["checkpoint_bucket"]
        wait_until(lambda: {"_SUCCESS", "_FAILED"} & set(keys(mock_aws, bucket["value"])))
        assert "_SUCCESS" in keys(mock_aws, bucket["value"]), nodes.logs()
    seen = s3.get_object(Bucket=bucket["value"], Key=f"{RUN_ID}/checkpoints/seen.pt")
    assert seen["Body"].read() == b"one"


@pytest.mark.slow
def test_a_plan_warns_of_subnets_without_a_way_to_aws(attached_terraform, mock_aws, workspace):
    """The default VPC has lost its internet gateway; then private subnets have their NAT gateway, and S3's endpoint."""

    def warnings() -> str:
        planned = attached_terraform.run("plan", "-no-color", "-input=false", cwd=workspace)
        assert planned.returncode == NO_CHANGES, planned.stdout + planned.stderr
        return planned.stdout.partition("Warning:")[2]

    attached_terraform.run("init", cwd=workspace)
    assert "No route to the internet from subnet-" in warnings()
    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    given = mock_aws.answers(instance_type=values["instance_type"], zone_id=values["availability_zone_id"])
    chosen = {name: given[name] for name in ("vpc_id", "subnet_ids")}
    (workspace / "site.auto.tfvars.json").write_text(json.dumps(chosen))
    assert warnings() == ""


def test_the_plan_says_nothing_of_what_must_be_set(tmp_path):
    values = plan_workspace(tmp_path / "w", "digits-cnn")
    assert not {"vpc_id", "subnet_ids", "ami_id", "container_image"} & set(values)
    assert values["source_folder"] == "source"
    assert (tmp_path / "w/source/train.py").read_text() == (EXAMPLES / "digits-cnn/train.py").read_text()


def test_a_changed_script_makes_the_workspace_stale(tmp_path):
    from click.testing import CliRunner

    from planner.cli import cli

    shutil.copytree(EXAMPLES / "digits-cnn", tmp_path / "job")
    arguments = ["plan", str(tmp_path / "job"), "--out", str(tmp_path / "job" / "w")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert CliRunner().invoke(cli, [*arguments, "--check"]).exit_code == 0  # the workspace inside is no source
    (tmp_path / "job" / "train.py").write_text("print('other')\n")
    stale = CliRunner().invoke(cli, [*arguments, "--check"])
    assert stale.exit_code == 5
    assert "source/train.py" in stale.output


def keys(aws, bucket):
    listed = aws.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{RUN_ID}/").get("Contents", [])
    return [item["Key"].removeprefix(f"{RUN_ID}/") for item in listed]


def empty(aws, bucket):
    """As somebody does who has taken the model away."""
    s3 = aws.client("s3")
    versions = s3.list_object_versions(Bucket=bucket)
    for item in [*versions.get("Versions", []), *versions.get("DeleteMarkers", [])]:
        s3.delete_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
