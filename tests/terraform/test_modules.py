"""The modules by themselves: format, validity, their own tests, and documentation that keeps up."""

import re
import shutil
from pathlib import Path

import pytest

MODULES = Path(__file__).resolve().parents[2] / "modules"
MODULE = MODULES / "gpu-cluster"


@pytest.fixture(scope="module")
def module(terraform, tmp_path_factory):
    """A copy that is ready to use, so that no .terraform folder lands in the repository."""
    copy = tmp_path_factory.mktemp("module") / MODULE.name
    shutil.copytree(MODULE, copy, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    terraform.init(copy)
    return copy


def test_modules_are_formatted(terraform):
    result = terraform.run("fmt", "-check", "-diff", "-recursive", cwd=MODULES)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_module_is_valid(terraform, module):
    result = terraform.run("validate", "-no-color", cwd=module)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Warning" not in result.stdout


@pytest.mark.slow
def test_module_passes_its_own_tests(terraform, module):
    result = terraform.run("test", "-no-color", cwd=module)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_what_stops_a_run_exists_before_its_nodes(terraform, module):
    """An apply that is killed once the groups exist has left the schedule and the alarm on silence behind."""
    shown = terraform.run("graph", cwd=module)
    assert shown.returncode == 0, shown.stderr
    edges = re.findall(r'"([^"]+)" -> "([^"]+)"', shown.stdout)

    def needs(start: str) -> set[str]:
        found, pending = set(), [start]
        while pending:
            here = pending.pop()
            new = {after for before, after in edges if before == here} - found
            found |= new
            pending += new
        return found

    schedule = {"aws_scheduler_schedule.stop", "aws_iam_role_policy.stop"}
    alarm = {"aws_cloudwatch_metric_alarm.silent", "aws_cloudwatch_event_target.silent", "aws_sfn_state_machine.silent"}
    for group in ("aws_autoscaling_group.nodes", "aws_autoscaling_group.fallback"):
        assert schedule | alarm <= needs(group)
    assert schedule <= needs("aws_autoscaling_group.memory")
    # The other way round none of them could be made first.
    assert not any(name.startswith("aws_autoscaling") for stop in schedule | alarm for name in needs(stop))


def test_module_leaves_provider_and_backend_to_the_root():
    source = "\n".join(path.read_text(encoding="utf-8") for path in MODULE.glob("*.tf"))
    assert not re.findall(r"^\s*(?:provider|backend)\s+\"", source, re.MULTILINE)
    assert "local-exec" not in source
    # The stop counts from the apply, once: ignored from then on, it is no drift.
    assert source.count("timestamp()") == 1
    for ignored in ("start_time", "start_date"):
        assert f"ignore_changes = [{ignored}]" in (MODULE / "deadline.tf").read_text(encoding="utf-8")
    assert "most_recent" not in source


@pytest.mark.parametrize(("block", "heading"), [("variable", "Inputs"), ("output", "Outputs")])
def test_readme_lists_exactly_what_the_module_has(block, heading):
    declared = re.findall(rf'^{block} "(\w+)"', source_of(block), re.MULTILINE)
    readme = (MODULE / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == declared


def test_readme_repeats_each_description():
    readme = (MODULE / "README.md").read_text(encoding="utf-8")
    for block in ("variable", "output"):
        for description in re.findall(r'^  description = "(.*)"$', source_of(block), re.MULTILINE):
            assert f"| {description.replace(chr(92), '')} |" in readme


@pytest.mark.parametrize("block", ["variable", "output"])
def test_everything_is_described(block):
    for name, body in blocks(block, source_of(block)).items():
        assert re.search(r'^  description = ".+"$', body, re.MULTILINE), name
        if block == "variable" and "= bool" not in body:
            assert "\n  validation {" in body, name
            assert "\n  type " in body, name


def test_user_data_takes_no_setting_but_as_base64():
    template = (MODULE / "user_data" / "start.sh.tftpl").read_text(encoding="utf-8")
    filled_in = re.findall(r"[$%]\{.*?\}", template)
    own = {
        "${first_contact_minutes}",
        "${name}",
        "${text}",
        "${services}",
        "%{ for name, text in agent ~}",
        "%{ endfor ~}",
    }
    assert set(filled_in) == own | {"${run_base64}"}


def test_the_agent_cannot_end_the_text_that_carries_it():
    for path in (MODULE / "user_data" / "agent").glob("*.py"):
        assert "SCAV_FILE" not in path.read_text(encoding="utf-8")


def source_of(kind: str) -> str:
    files = ["variables.tf", "variables_options.tf"] if kind == "variable" else ["outputs.tf"]
    return "\n".join((MODULE / file).read_text(encoding="utf-8") for file in files)


def blocks(kind: str, text: str) -> dict[str, str]:
    found = re.findall(rf'^{kind} "(\w+)" \{{\n(.*?)^\}}$', text, re.DOTALL | re.MULTILINE)
    return dict(found)
