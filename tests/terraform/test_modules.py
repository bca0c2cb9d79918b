"""The modules by themselves: format, validity, their own tests, and documentation that keeps up."""

import base64
import re
import shutil
import subprocess
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


def test_module_leaves_provider_and_backend_to_the_root():
    source = "\n".join(path.read_text(encoding="utf-8") for path in MODULE.glob("*.tf"))
    assert not re.findall(r"^\s*(?:provider|backend)\s+\"", source, re.MULTILINE)
    assert "local-exec" not in source
    assert "timestamp()" not in source
    assert "most_recent" not in source


@pytest.mark.parametrize(
    ("file", "block", "heading"), [("variables.tf", "variable", "Inputs"), ("outputs.tf", "output", "Outputs")]
)
def test_readme_lists_exactly_what_the_module_has(file, block, heading):
    declared = re.findall(rf'^{block} "(\w+)"', (MODULE / file).read_text(encoding="utf-8"), re.MULTILINE)
    readme = (MODULE / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == declared


def test_readme_repeats_each_description():
    readme = (MODULE / "README.md").read_text(encoding="utf-8")
    for file in ("variables.tf", "outputs.tf"):
        text = (MODULE / file).read_text(encoding="utf-8")
        for description in re.findall(r'^  description = "(.*)"$', text, re.MULTILINE):
            assert f"| {description.replace(chr(92), '')} |" in readme


@pytest.mark.parametrize("block", ["variable", "output"])
def test_everything_is_described(block):
    text = (MODULE / f"{block}s.tf").read_text(encoding="utf-8")
    for name, body in blocks(block, text).items():
        assert re.search(r'^  description = ".+"$', body, re.MULTILINE), name
        if block == "variable" and "= bool" not in body:
            assert "\n  validation {" in body, name
            assert "\n  type " in body, name


@pytest.fixture(scope="module")
def start_script(tmp_path_factory):
    """The user data as Terraform would render it."""
    template = (MODULE / "user_data" / "start.sh.tftpl").read_text(encoding="utf-8")
    filled = re.sub(r"\$\{(\w+)\}", lambda match: base64.b64encode(match[1].encode()).decode(), template)
    script = tmp_path_factory.mktemp("user_data") / "start.sh"
    script.write_text(filled, encoding="utf-8")
    return script


def test_user_data_takes_nothing_but_base64():
    template = (MODULE / "user_data" / "start.sh.tftpl").read_text(encoding="utf-8")
    assert re.findall(r"[$%]\{.*?\}", template) == ["${run_base64}", "${node_agent_gzip_base64}"]


def test_user_data_is_bash(tool, start_script):
    result = subprocess.run([tool("bash"), "-n", str(start_script)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_user_data_passes_shellcheck(tool, start_script):
    command = [tool("shellcheck"), "--enable=all", "--exclude=SC2250", str(start_script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def blocks(kind: str, text: str) -> dict[str, str]:
    found = re.findall(rf'^{kind} "(\w+)" \{{\n(.*?)^\}}$', text, re.DOTALL | re.MULTILINE)
    return dict(found)
