"""Real Terraform (or OpenTofu) for the tests, with whatever provider this machine can offer."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest
from agent_node import memory_node, world  # noqa: F401 - fixtures of several files
from mock_aws import MockAws, attached_provider, started_mock
from provider_home import plain_terraform, scav_home  # noqa: F401 - fixtures of several files

PROVIDER = Path("registry.terraform.io", "hashicorp", "aws")
MINUTES = 60
WANTED_PROVIDER = """\
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.100, < 7.0"
    }
  }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    """The command, in an environment that depends on nothing in the user's own configuration."""

    executable: str
    environment: dict[str, str]
    arguments: tuple[str, ...] = ()
    """Words between the program and its own arguments, where Terraform is not a program by itself."""

    def run(self, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.executable, *self.arguments, *args],
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30 * MINUTES,
            check=False,
        )

    def init(self, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Install the provider; where that is impossible the test is skipped, and in CI it fails."""
        result = self.run("init", "-backend=false", "-input=false", "-no-color", cwd=cwd)
        if result.returncode != 0 and _provider_is_missing(result.stderr):
            unavailable(f"the AWS provider cannot be installed: {result.stderr.strip()}")
        assert result.returncode == 0, result.stderr
        return result


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    executable = shutil.which("terraform") or shutil.which("tofu")
    if executable is None:
        unavailable("neither terraform nor tofu is on PATH")
    config = tmp_path_factory.mktemp("terraform") / "cli.tfrc"
    config.write_text(cli_config(find_mirror()), encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "AWS_"))}
    environment = {
        **inherited,
        "TF_CLI_CONFIG_FILE": str(config),
        "TF_IN_AUTOMATION": "1",
        "CHECKPOINT_DISABLE": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        # A third less processor time for reading the provider's schema, which is most of every command.
        "GOGC": "400",
    }
    return Terraform(executable=executable, environment=environment)


@pytest.fixture(scope="session")
def aws_versions() -> list[Path]:
    """Of the AWS provider, packed or not, in a mirror of this machine."""
    mirror = find_mirror()
    return [] if mirror is None else sorted((mirror / PROVIDER).glob("*"))


@pytest.fixture(scope="session")
def provider_binary(terraform: Terraform, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The AWS provider as `terraform init` finds it: in a mirror of this machine, or downloaded."""
    folder = tmp_path_factory.mktemp("provider")
    (folder / "versions.tf").write_text(WANTED_PROVIDER, encoding="utf-8")
    terraform.init(folder)
    found = sorted((folder / ".terraform/providers").glob("*/hashicorp/aws/*/*/terraform-provider-aws*"))
    assert found, "terraform init installed no provider"
    return found[-1].resolve()


@pytest.fixture(scope="session")
def mock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MockAws]:
    with started_mock(tmp_path_factory.mktemp("mock-aws")) as aws:
        yield aws


@pytest.fixture(scope="session")
def terraform_on_mock(terraform: Terraform, mock_server: MockAws) -> Terraform:
    """Starts a provider for each command, as outside the tests; see attached_terraform for the fast one."""
    return replace(terraform, environment=terraform.environment | mock_server.environment)


@pytest.fixture(scope="session")
def attached_terraform(
    terraform_on_mock: Terraform, provider_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terraform]:
    """With one provider that stays: starting it is most of what a short command takes."""
    environment = terraform_on_mock.environment
    with attached_provider(provider_binary, environment, tmp_path_factory.mktemp("attached") / "log") as reattach:
        yield replace(terraform_on_mock, environment=environment | {"TF_REATTACH_PROVIDERS": reattach})


@pytest.fixture
def mock_aws(mock_server: MockAws) -> Iterator[MockAws]:
    """The mock AWS, empty; a call that it could not answer fails the test, even if Terraform only warned."""
    mock_server.reset()
    yield mock_server
    assert mock_server.failures() == []


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Finds a command on PATH or beside this Python, where pip puts it."""

    def find(name: str) -> str:
        here = str(Path(sys.executable).parent)
        return shutil.which(name) or shutil.which(name, path=here) or unavailable(f"{name} is not installed")

    return find


def unavailable(reason: str) -> NoReturn:
    """A test that cannot run is a skip on a laptop and a failure in CI, where everything should be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def cli_config(mirror: Path | None) -> str:
    if mirror is None:
        return "provider_installation {\n  direct {}\n}\n"
    name = PROVIDER.as_posix()
    path = str(mirror).replace("\\", "/").replace('"', '\\"')
    return (
        "provider_installation {\n"
        f'  filesystem_mirror {{\n    path    = "{path}"\n    include = ["{name}"]\n  }}\n'
        f'  direct {{\n    exclude = ["{name}"]\n  }}\n'
        "}\n"
    )


def find_mirror() -> Path | None:
    """The folder that holds the AWS provider for this machine, or None when it has to be downloaded."""
    named = os.environ.get("SCAV_TEST_PLUGIN_DIR")
    if named:
        if not holds_provider(Path(named)):
            pytest.fail(f"SCAV_TEST_PLUGIN_DIR={named} has no {PROVIDER}/<version>/{_os_arch()}")
        return Path(named)
    return next((folder for folder in (*plugin_folders(), *likely_folders()) if holds_provider(folder)), None)


def plugin_folders() -> list[Path]:
    """Terraform's own: its cache, and the implied mirrors that its documentation lists."""
    home = Path.home()
    data_home = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    data_dirs = (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    cache = os.environ.get("TF_PLUGIN_CACHE_DIR")
    return [
        *([Path(cache)] if cache else []),
        home / ".terraform.d/plugins",
        home / ".terraform.d/plugin-cache",
        home / "Library/Application Support/io.terraform/plugins",
        data_home / "terraform/plugins",
        *(Path(folder) / "terraform/plugins" for folder in data_dirs if folder),
    ]


def likely_folders() -> Iterator[Path]:
    """Where people put mirrors, at most two folders deep: a deeper search would take longer than a download."""
    roots = [Path("/opt"), Path("/usr/local"), Path("/usr/share"), Path("/usr/local/share"), Path.home()]
    for root in roots:
        children = _folders(root)
        yield from (root, *children)
        for child in children:
            yield from _folders(child)


def holds_provider(folder: Path) -> bool:
    """Unpacked (<version>/<os_arch>/) or packed (one archive per version)."""
    try:
        unpacked = any((version / _os_arch()).is_dir() for version in _folders(folder / PROVIDER))
        return unpacked or any((folder / PROVIDER).glob(f"*_{_os_arch()}.zip"))
    except OSError:
        return False


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(child for child in parent.iterdir() if child.is_dir())
    except OSError:  # missing, or not ours to read
        return []


def _os_arch() -> str:
    machine = platform.machine().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{platform.system().lower()}_{architecture}"


def _provider_is_missing(stderr: str) -> bool:
    signs = ("Failed to query available provider packages", "Failed to install provider", "could not connect")
    return any(sign in stderr for sign in signs)
