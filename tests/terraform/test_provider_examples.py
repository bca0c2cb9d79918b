"""docs/provider.md: every example is what Terraform reads, and all of them together are one root that it plans."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from provider_home import JOB, REPOSITORY, at_home, scav, write_alone

pytestmark = pytest.mark.slow

ROOT, LIMITS, OFFERS, MODULE, EXTERNAL, CONFIGURATION = re.findall(
    r"(?s)```hcl\n(.*?)```", (REPOSITORY / "docs" / "provider.md").read_text(encoding="utf-8")
)
LONGEST_LINE = 200
MOST_LINES = 120


def test_the_examples_are_a_root_that_terraform_validates_and_plans(plain_terraform, tmp_path):
    """The first is the root that `scav init --terraform` writes; the others change it, as overrides do."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "scav.yaml").write_text(JOB, encoding="utf-8")
    assert scav("init", "--terraform", str(root), home=tmp_path).returncode == 0
    assert (root / "main.tf").read_text(encoding="utf-8") == ROOT
    files = {"limits_override.tf": LIMITS, "offers.tf": OFFERS, "module_override.tf": MODULE}
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8")
    for command in ("init", "validate"):
        result = plain_terraform.run(command, "-no-color", cwd=root)
        assert result.returncode == 0, result.stderr
    # Without what asks AWS.
    targets = ["-target=scav_plan.run", "-target=data.scav_offers.small", "-target=output.cheapest"]
    planned = plain_terraform.run("plan", "-no-color", *targets, cwd=root)
    assert planned.returncode == 0, planned.stderr
    assert re.search(r'\+ keepers +=.*\n +\+ "prices" += "2026-08"', planned.stdout)
    assert re.search(r"\+ cheapest += [0-9.]+\n", planned.stdout)
    lines = planned.stdout.splitlines()
    assert max(map(len, lines)) <= LONGEST_LINE
    assert len(lines) <= MOST_LINES


def test_every_example_is_written_as_terraform_formats_it(plain_terraform, tmp_path):
    """Of what no other test reads: a program of hashicorp/external, whose answers tests/cli/test_external.py checks."""
    for number, text in enumerate((LIMITS, OFFERS, MODULE, EXTERNAL, CONFIGURATION)):
        (tmp_path / f"{number}.tf").write_text(text, encoding="utf-8")
    result = plain_terraform.run("fmt", "-check", "-diff", "-no-color", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_packed_mirror_serves_the_configuration_of_the_page(terraform, scav_home, tmp_path):
    """From init to an apply and an empty plan, with nothing of the provider in any plug-in folder."""
    mirror = tmp_path / "mirror"
    code = next(scav_home.parent.glob("code*"))
    packed = scav("provider", "package", "--out", str(mirror), home=tmp_path, code=code)
    assert packed.returncode == 0, packed.stderr
    assert "/srv/mirror" in CONFIGURATION
    configuration = tmp_path / "page.tfrc"
    configuration.write_text(CONFIGURATION.replace("/srv/mirror", str(mirror)), encoding="utf-8")
    (tmp_path / "home").mkdir()
    elsewhere = at_home(terraform, tmp_path / "home")
    elsewhere = replace(elsewhere, environment=elsewhere.environment | {"TF_CLI_CONFIG_FILE": str(configuration)})
    root = write_alone(tmp_path / "root")
    for words in ("init", "validate", "apply -auto-approve", "plan -detailed-exitcode", "destroy -auto-approve"):
        result = elsewhere.run(*words.split(), "-no-color", cwd=root)
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    assert "scav_plan" not in Path(root / "terraform.tfstate").read_text(encoding="utf-8")
