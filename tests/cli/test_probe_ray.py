"""`scav probe --on ray` where there is no Ray: one line, and nothing is started."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import Result

from planner.errors import InputError
from planner.outside.runners import ray_runner

pytest.importorskip("ray")

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "digits", ignore=shutil.ignore_patterns("measurements.jsonl")))


@contextlib.contextmanager
def service(answer: bytes) -> Iterator[str]:
    """Something that answers everybody with this, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as caller:
                        caller.recv(1)
                        caller.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("command", ["probe", "tune"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ray-address", "127.0.0.1:1"], "Error: no Ray cluster at 127.0.0.1:1: connection refused; start one"),
        (["--ray-address", "local"], "Error: --ray-address: write host:6379, ray://host:10001 or auto"),
        (["--ray-address", "127.0.0.1:99999"], "Error: --ray-address: write host:6379"),
        (["--ray-address", "http://127.0.0.1:8265"], "Error: --ray-address: write host:6379"),
        (["--image", "mine"], "Error: --image: has no meaning with --on ray, only with --on container"),
        (["--writes-steps"], "Error: --writes-steps: has no meaning with --on ray, only with --on local or container"),
        (["--max-cost", "$1"], "Error: --max-cost: has no meaning with --on ray, only with --on aws"),
    ],
)
def test_bad_input_is_one_line(
    run_scav: Callable[..., Result], digits: Path, command: str, options: list[str], words: str
) -> None:
    result = run_scav(command, digits, "--on", "ray", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(words)
    assert not (digits / "measurements.jsonl").exists()


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b""])
def test_another_service_is_not_waited_for(run_scav: Callable[..., Result], digits: Path, answer: bytes) -> None:
    with service(answer) as address:
        result = run_scav("probe", digits, "--on", "ray", "--ray-address", address)
    assert result.stderr.startswith(f"Error: no Ray cluster at {address}: ")
    assert len(result.stderr.splitlines()) == 1


def test_without_any_cluster_here_the_line_has_scavs_own_option(
    run_scav: Callable[..., Result], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's may run on this machine, so it is said for Ray that there is none."""

    def init(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please specify `--address`.")

    monkeypatch.setattr("ray.init", init)
    assert run_scav("probe", digits, "--on", "ray").stderr == (
        "Error: no Ray cluster runs on this machine: start one (ray start --head), or name one by --ray-address\n"
    )


def test_an_address_means_nothing_elsewhere(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--ray-address", "head:6379")
    assert result.stderr == "Error: --ray-address: has no meaning with --on local, only with --on ray\n"


def test_nodes_get_the_folder_and_the_probes_without_what_is_nobodys(digits: Path) -> None:
    for name in (".git/config", ".venv/bin/python", "__pycache__/train.pyc", "data/small.npy", ".env"):
        (digits / name).parent.mkdir(parents=True, exist_ok=True)
        (digits / name).touch()
    with tarfile.open(fileobj=BytesIO(ray_runner.packed(digits, ("train.py",)))) as archive:
        names = set(archive.getnames())
    assert {"script/train.py", "script/data/small.npy", "script/.env", "probes/run.py", "probes/keeper.py"} <= names
    assert not [name for name in names if ".git" in name or ".venv" in name or "__pycache__" in name]


def test_a_folder_with_its_data_is_too_large_to_send(digits: Path) -> None:
    with (digits / "data.bin").open("wb") as data:
        data.truncate(201 << 20)
    with pytest.raises(
        InputError, match="holds more than 200 MiB, which every node would be sent: keep data elsewhere"
    ):
        ray_runner.packed(digits, ("train.py",))


def test_a_script_elsewhere_would_not_be_there(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for command in ("../train.py", str(tmp_path / "train.py"), str(digits / "train.py")):
        with pytest.raises(InputError, match="must be named from the job's folder on, which is all that nodes get"):
            ray_runner.packed(digits, (command,))
