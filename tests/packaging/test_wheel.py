"""What is built is what was tested: wheel, sdist and editable install carry the same templates and modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import planner
from planner.outside import assets

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = ("planner", "probes", "templates", "modules", "examples", "docs", "tests", "benchmarks")
# What Terraform and Python leave in a checkout that people work in.
DIRT = (
    "modules/gpu-cluster/.terraform/providers/aws",
    "modules/gpu-cluster/.terraform.lock.hcl",
    "modules/gpu-cluster/terraform.tfstate",
    "modules/gpu-cluster/terraform.tfstate.backup",
    "templates/training/.terraform/modules.json",
    "planner/__pycache__/old.cpython-311.pyc",
    "planner/cli/__pycache__/old.cpython-311.pyc",
)


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources with dirt in it, and without .gitignore: the build settings must keep the dirt out."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, copy / name)
    for name in SOURCE:
        if (REPOSITORY / name).exists():
            ignored = shutil.ignore_patterns("__pycache__", ".terraform*", "*.tfstate*", ".pytest_cache")
            shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
    for name in DIRT:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("dirt", encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def built(checkout):
    """The sdist, and the wheel that is built from it."""
    run(sys.executable, "-m", "build", "--outdir", "built", cwd=checkout)
    return checkout / "built"


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def wheel_contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_package_templates_modules_and_catalogue(wheel):
    names = set(wheel_contents(wheel))
    assert {
        "planner/cli/plan.py",
        "planner/inputs/catalog/snapshot.json",
        "planner/_assets/templates/job/scav.yaml",
    } <= names
    for kind in ("templates", "modules"):
        sources = {f"planner/_assets/{kind}/{name}" for name in contents(REPOSITORY / kind) if shipped(name)}
        assert sources == {name for name in names if name.startswith(f"planner/_assets/{kind}/")}


def shipped(name):
    parts = name.split("/")
    return parts[1] != "tests" and not any(part.startswith((".terraform", "__pycache__")) for part in parts)


def test_the_wheel_has_nothing_that_terraform_tests_or_python_left_behind(wheel):
    unwanted = (".terraform", "tfstate", "__pycache__", ".pyc", ".pytest_cache", "scav-plan")
    for name in wheel_contents(wheel):
        assert not any(piece in name for piece in unwanted), name
        assert name.startswith(("planner/", "probes/", "scav-")), name
        assert "/tests/" not in name


def test_the_sdist_has_what_building_and_testing_need_and_no_dirt(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "Makefile",
        "LICENSE",
        "tests/conftest.py",
        "examples/resnet50-imagenet/scav.yaml",
    } <= names
    assert not [name for name in names if ".terraform" in name or "tfstate" in name or "__pycache__" in name]


def test_the_checkout_builds_the_same_wheel_as_the_sdist(checkout, wheel):
    run(sys.executable, "-m", "build", "--wheel", "--outdir", "direct", cwd=checkout)
    (direct,) = (checkout / "direct").glob("*.whl")
    assert wheel_contents(direct) == wheel_contents(wheel)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The scav of a new virtual environment, with the dependencies that the wheel names and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return binaries / "scav"


@pytest.mark.parametrize("example", ["resnet50-imagenet", "gpt2-openwebtext"])
def test_an_installed_wheel_plans_byte_for_byte_like_the_checkout(installed, tmp_path, example):
    shutil.copytree(REPOSITORY / "examples" / example, tmp_path / "job")
    first = run(installed, "plan", "job", "--out", "plan", cwd=tmp_path)
    installed_files = contents(tmp_path / "plan")
    shutil.rmtree(tmp_path / "plan")
    second = run(sys.executable, "-m", "planner", "plan", "job", "--out", "plan", cwd=tmp_path)
    assert first == second
    assert installed_files == contents(tmp_path / "plan")
    assert "modules/gpu-cluster/main.tf" in installed_files or len(installed_files) > 10


def test_an_installed_wheel_has_every_command(installed, tmp_path):
    run(installed, "init", "job", cwd=tmp_path)
    assert (tmp_path / "job" / "scav.yaml").read_text(encoding="utf-8") == assets.load_starter_job()
    assert "g5.xlarge" in run(installed, "catalog", "list", "g5.*", cwd=tmp_path)
    run(installed, "plan", "job", "--plot", cwd=tmp_path)
    run(installed, "review", "scav-plan", "--format", "markdown", cwd=tmp_path)
    assert run(installed, "--version", cwd=tmp_path) == f"scav, version {planner.__version__}\n"


def test_an_editable_install_finds_its_assets_in_the_checkout():
    assert Path(planner.__file__).resolve().parents[1] == REPOSITORY, "run the tests with `make test`"
    assert set(assets.load_templates("training")) == {
        path.name.removesuffix(".j2") for path in (REPOSITORY / "templates" / "training").glob("*.j2")
    }
    assert set(assets.load_module("gpu-cluster")) == {
        name.removeprefix("gpu-cluster/")
        for name in contents(REPOSITORY / "modules")
        if shipped(name) and name.startswith("gpu-cluster/")
    }
