"""What Terraform starts refuses in one line on stdout: Terraform shows that of a provider that ends early."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import ScavError
from planner.provider import __main__ as program
from planner.provider import installation, launcher
from planner.provider.server import COOKIE


@pytest.fixture
def refused(capsys):
    """What `start` says, with the arguments of an installation but for some."""

    def start(**other: str) -> str:
        usual = {"package": "/nowhere", "sha256": "", "version": "9", "python": f"3.{sys.version_info[1]}"}
        with pytest.raises(SystemExit) as ended:
            launcher.start(**usual | other)
        assert ended.value.code == 1
        return capsys.readouterr().out

    return start


def test_another_python_other_code_and_no_code_are_refused(refused, tmp_path):
    (tmp_path / "code.py").write_text("x = 1\n")
    again = "run `scav provider install` again, and then `terraform init -upgrade`\n"
    for said, line in (
        (refused(python="2.7"), "scav: was installed with Python 2.7, and this is 3."),
        (refused(), "scav: was removed from /nowhere"),
        (refused(package=str(tmp_path)), f"scav: the code in {tmp_path} is not what scav provider install saw of 9"),
    ):
        assert said.startswith(line)
        assert said.endswith(again)
        assert said.count("\n") == 1


def test_every_file_counts_by_name_and_content_but_not_what_python_keeps(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    first = launcher.code_sha256(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.pyc").write_bytes(b"")
    assert launcher.code_sha256(tmp_path) == first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = launcher.code_sha256(tmp_path)
    (tmp_path / "b.py").write_text("x = 2\n")
    assert len({first, renamed, launcher.code_sha256(tmp_path)}) == 3


@pytest.mark.parametrize("module", ["grpc", "msgpack", "cryptography"])
def test_what_is_missing_is_said_with_what_to_install(monkeypatch, capsys, module):
    for name in [name for name in sys.modules if name.startswith("planner.provider.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert program.run() == 1
    assert capsys.readouterr().out == f"scav: the package {module} is missing: pip install 'scav-planner[provider]'\n"


def test_an_installation_without_its_packages_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "missing_packages", lambda: ["grpcio", "msgpack"])
    with pytest.raises(ScavError, match=r"grpcio, msgpack missing: pip install 'scav-planner\[provider\]'"):
        installation.install(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_starts_it_by_hand_is_told_what_it_is(tmp_path):
    installed = installation.install(tmp_path)
    assert len({path.read_text() for path in installed.executables}) == 1
    (here, *_) = installed.executables
    ended = subprocess.run([here], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert (
        ended.stdout == "scav: this is a provider for Terraform, which starts it by itself: `scav provider install`\n"
    )


NOISE = """
import os

print("noise of an import")
quiet = _credentials


def _credentials():
    print("noise of Python")
    os.write(1, b"noise of a library\\n")
    return quiet()
"""


def test_what_is_printed_while_it_starts_does_not_reach_the_handshake(tmp_path):
    """Terraform takes the first line on stdout for the handshake, whatever it is."""
    code = tmp_path / "planner"
    shutil.copytree(Path(launcher.__file__).parents[1], code, ignore=shutil.ignore_patterns("__pycache__"))
    with (code / "provider/server.py").open("a") as server:
        server.write(NOISE)
    install = [sys.executable, "-m", "planner", "provider", "install", "--dir", str(tmp_path)]
    subprocess.run(install, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    (here,) = tmp_path.glob("*/scav/scav/*/linux_amd64/*")
    environment = os.environ | {COOKIE[0]: COOKIE[1], "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([here], env=environment, **pipes) as process:
        line = process.stdout.readline()
        process.kill()
        rest, errors = process.communicate(timeout=60)
    assert line.startswith("1|6|unix|")
    assert rest == ""
    assert errors.count("noise of") == 3
