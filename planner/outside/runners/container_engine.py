"""Docker or Podman, whichever runs here, and the clusters of containers that scav makes with it.

Everything is labelled and named `scav-probe-<process id>-…`, so that what a killed scav left behind can be told from
what another one is using.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, ScavError, one_line

LABEL = "scav-probe"
ENGINES = ("docker", "podman")
RUN_ARGUMENTS = "SCAV_CONTAINER_ARGS"
BUILD_ARGUMENTS = "SCAV_CONTAINER_BUILD_ARGS"
_SHORT_SECONDS = 120.0
_LONG_SECONDS = 3600.0  # a deep learning container is several gigabytes
_LAST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What to run, and what a measurement says it was run with."""

    id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`docker` or `podman`, with what this machine's needs in addition."""

    name: str
    run_arguments: tuple[str, ...] = ()
    build_arguments: tuple[str, ...] = ()

    def call(self, *arguments: str, timeout_seconds: float = _SHORT_SECONDS) -> str:
        """What it printed; an error with its last words where it failed."""
        result = self.try_call(*arguments, timeout_seconds=timeout_seconds)
        if result.returncode != 0:
            what = " ".join(arguments[:2] if arguments[0] in {"network", "image"} else arguments[:1])
            raise ScavError(f"{self.name} {what} failed: {_last_words(result.stderr or result.stdout)}")
        return result.stdout.strip()

    def try_call(self, *arguments: str, timeout_seconds: float = _SHORT_SECONDS) -> subprocess.CompletedProcess[str]:
        """In a session of its own: Ctrl-C is for scav, which then cleans up with the same program."""
        try:
            return subprocess.run(
                [self.name, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise ScavError(f"{self.name} {arguments[0]} did not answer within {timeout_seconds:.0f} s") from None
        except OSError as error:
            raise ScavError(f"{self.name} cannot be run: {one_line(str(error))}") from None

    def build(self, context: Path, base: str | None) -> Image:
        """From the Containerfile in `context`; what has not changed since the last time is not built again."""
        chosen = () if base is None else ("--build-arg", f"BASE={base}")
        arguments = ["--file", str(context / "Containerfile"), "--tag", LABEL, *chosen, *self.build_arguments]
        self.call("build", *arguments, str(context), timeout_seconds=_LONG_SECONDS)
        return self.image(LABEL)

    def image(self, reference: str) -> Image:
        """One that is here, or else is fetched."""
        form = "{{.Id}} {{range .RepoDigests}}{{.}} {{end}}"
        found = self.try_call("image", "inspect", "--format", form, reference)
        if found.returncode != 0:
            self.call("pull", "--quiet", reference, timeout_seconds=_LONG_SECONDS)
            found = self.try_call("image", "inspect", "--format", form, reference)
        if found.returncode != 0 or not found.stdout.strip():
            raise ScavError(f"{self.name} has no image {reference}: {_last_words(found.stderr)}")
        identity, *digests = found.stdout.split()
        whole = identity if identity.startswith("sha256:") else f"sha256:{identity}"
        return Image(id=whole.removeprefix("sha256:"), digest=digests[0].partition("@")[2] if digests else whole)

    def remove(self, containers: Sequence[str], networks: Sequence[str]) -> None:
        """Whatever of it there is; killed first, because Podman would wait for each of them to end."""
        if containers:
            self.try_call("kill", *containers)
            self.try_call("rm", "--force", "--volumes", *containers)
        if networks:
            self.try_call("network", "rm", *networks)

    def labelled(self) -> tuple[list[str], list[str]]:
        """Names of the containers and networks that some scav made."""
        only = ("--filter", f"label={LABEL}")
        containers = self.call("ps", "--all", *only, "--format", "{{.Names}}").splitlines()
        return containers, self.call("network", "ls", *only, "--format", "{{.Name}}").splitlines()

    def remove_leftovers(self) -> None:
        """Of processes that are gone; a scav that is measuring keeps its own."""
        containers, networks = ([name for name in names if _is_left_over(name)] for names in self.labelled())
        self.remove(containers, networks)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[ContainerCluster]:
        """A private network for containers, gone at the end with all that is on it."""
        cluster = ContainerCluster(engine=self, name=f"{LABEL}-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self.call("network", "create", "--label", LABEL, cluster.name)
            yield cluster
        finally:
            found = self.try_call("ps", "--all", "--filter", f"name={cluster.name}", "--format", "{{.Names}}")
            self.remove(found.stdout.split(), [cluster.name])


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCluster:
    """Containers that reach each other, each with an address of its own; the first is known to all as `node-0`."""

    engine: Engine
    name: str

    def container(self, node: int) -> str:
        return f"{self.name}-{node}"

    def start(self, node: int, image: Image, arguments: Sequence[str], command: Sequence[str]) -> None:
        """The first one has to be started first: the others are told its address, as not every engine has a DNS."""
        known = () if node == 0 else ("--add-host", f"node-0:{self.address(0)}")
        self.engine.call(
            *("run", "--detach", "--name", self.container(node), "--label", LABEL),
            *("--network", self.name, "--hostname", f"node-{node}", *known),
            *(*arguments, *self.engine.run_arguments, image.id, *command),
        )

    def address(self, node: int) -> str:
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self.engine.call("inspect", "--format", form, self.container(node))


def find_engine(environment: Mapping[str, str]) -> Engine:
    """The first that answers; having a client without a service is common."""
    silent = []
    for name in ENGINES:
        if shutil.which(name) is None:
            continue
        engine = Engine(
            name=name,
            run_arguments=_split(environment, RUN_ARGUMENTS),
            build_arguments=_split(environment, BUILD_ARGUMENTS),
        )
        asked = engine.try_call("info", timeout_seconds=30.0)
        if asked.returncode == 0:
            return engine
        silent.append(f"{name} does not run: {_last_words(asked.stderr)}")
    if silent:
        raise ScavError(f"no container engine: {'; '.join(silent)}; start one, or probe with --on local")
    raise ScavError("no container engine: install Docker or Podman, or probe with --on local")


def _split(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(environment.get(name, "")))
    except ValueError as error:
        raise InputError(str(error).lower(), key=name) from None


def _is_left_over(name: str) -> bool:
    """This process starts with nothing: what bears its number is from another one that had it before."""
    found = re.fullmatch(rf"{LABEL}-(\d+)-[\w-]+", name)
    if found is None:
        return False
    owner = int(found[1])
    if owner == os.getpid():
        return True
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _last_words(text: str) -> str:
    """Without warnings, and without Podman's quotation of the whole step that failed."""
    lines = (re.sub(r'building at STEP ".*": ', "", line).strip() for line in text.splitlines())
    words = [line for line in lines if line and "level=warning" not in line]
    return one_line(" | ".join(words[-_LAST_LINES:])) or "it said nothing"
