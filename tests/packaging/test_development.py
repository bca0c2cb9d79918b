"""A developer's tools: the lock files fit pyproject.toml and name no index, the hooks check what `make lint` does."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
LOCKS = {"dev.lock": "dev", "pipeline.lock": "terraform"}
NOWHERE = {"extra": "", "sys_platform": "", "platform_system": ""}  # where no marker of CUDA's packages holds
HOOKS = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


def lock_text(name: str) -> str:
    return (REPOSITORY / "requirements" / name).read_text(encoding="utf-8")


def locked(name: str) -> dict[str, str]:
    """Version by package; several lines of one package, for several platforms, would be a surprise here."""
    pins = re.findall(r"(?m)^([a-z0-9.-]+)==(\S+)", lock_text(name))
    assert len(pins) == len(dict(pins))
    return {canonicalize_name(package): version for package, version in pins}


@pytest.mark.parametrize(("name", "extra"), LOCKS.items())
def test_a_lock_has_all_that_the_project_asks_for(name, extra):
    pins = locked(name)
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]:
        needed = Requirement(line)
        assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), f"`make lock`: {line}"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_a_hash_for_everything_and_names_no_index_and_no_folder(name):
    entries = re.findall(r"(?m)^\S.*?(?=^\S|\Z)", re.sub(r"(?m)^\s*#.*\n", "", lock_text(name)), flags=re.DOTALL)
    assert len(entries) == len(locked(name))
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"https?:|file:|index-url|find-links|(?m:(^|\s)/)", lock_text(name))


def test_pipelines_install_what_is_developed_with():
    development = locked("dev.lock")
    assert {name: development[name] for name in locked("pipeline.lock")} == locked("pipeline.lock")


def test_what_torch_needs_on_every_machine_is_locked():
    pytest.importorskip("torch")
    pins = locked("dev.lock")
    needs = [Requirement(line) for line in importlib.metadata.requires("torch") or []]
    everywhere = [need for need in needs if not need.marker or need.marker.evaluate(NOWHERE)]
    assert [need.name for need in everywhere if canonicalize_name(need.name) not in pins] == []


def test_containers_measure_with_the_torch_that_is_developed_with():
    (version,) = re.findall(r"(?m)^TORCH := torch==(\S+)$", MAKEFILE)
    assert f"ARG TORCH_VERSION={version}\n" in (REPOSITORY / "probes" / "Containerfile").read_text(encoding="utf-8")


def test_nothing_installs_the_scav_of_somebody_else():
    """On PyPI it is another project's name; ours is scav-planner."""
    folders = ("benchmarks", "docs", "examples", "modules", "planner", "probes", "templates", "tests")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.suffix != ".pyc"]
    files = [path for path in [*files, *REPOSITORY.glob("*")] if path.is_file() and path != Path(__file__)]
    assert len(files) > 300
    wrong = re.compile(r"\bscav\[[a-z]+\]|\bscav[=~>]=|pip3? install[^\n`]* ['\"]?scav(?![-.\w])")
    assert [path for path in files if wrong.search(path.read_text(encoding="utf-8", errors="replace"))] == []


def test_hooks_run_the_commands_of_make_lint_and_download_nothing():
    assert [repository["repo"] for repository in HOOKS["repos"]] == ["local"]
    hooks = HOOKS["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    lint = re.search(r"(?ms)^lint:.*?\n\n", MAKEFILE)
    assert lint is not None
    for hook in hooks:
        tool, *words = hook["entry"].replace(" --force-exclude", "").split()
        assert f"$(BIN)/{Path(tool).name} {' '.join(words[:2])}" in lint[0]


@pytest.mark.parametrize(
    ("text", "hook", "code"),
    [("import os\n", "ruff-check", 1), ("x = 1\n", "ruff-check", 0), ("x=1\n", "ruff-format", 1)],
)
def test_a_hook_stops_what_ruff_would_change(tmp_path, text, hook, code):
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text(encoding="utf-8"))
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    (tmp_path / "module.py").write_text(text)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**inherited, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, env=environment, check=True)
    subprocess.run(["git", "add", "module.py"], cwd=tmp_path, env=environment, check=True)
    result = subprocess.run(
        [Path(sys.executable).with_name("pre-commit"), "run", hook, "--files", "module.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == code, result.stdout + result.stderr
