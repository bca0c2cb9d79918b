"""The key of a run: what changes it, and what does not."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.outside.what_ran import ran_here, ran_in_image, script_sha256

FILES = {
    "train.py": "import json, helpers\nfrom nets import small\n\ndef late():\n    import lazily\n",
    "helpers.py": "from nets.blocks import block\n",
    "lazily.py": "",
    "nets/__init__.py": "",
    "nets/small.py": "from . import blocks\nfrom ..outside import nothing\n",
    "nets/blocks.py": "from nets import deep\n",
    "nets/deep/__init__.py": "from .inner import x\n",
    "nets/deep/inner.py": "x = 1\n",
    "config.yaml": "layers: 2\n",
    "unrelated.py": "import train\n",
    "notes.txt": "",
}
COMMAND = ("train.py", "--config=config.yaml", "--batch-size", "{gpu_batch}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def key(folder: Path) -> Callable[..., str | None]:
    return lambda *command: ran_here(folder, command or COMMAND, in_python=True).key


REACHED = sorted(set(FILES) - {"unrelated.py", "notes.txt"})


@pytest.mark.parametrize("name", REACHED)
def test_an_edit_of_what_the_script_reaches_changes_the_key(
    folder: Path, key: Callable[..., str | None], name: str
) -> None:
    before = key()
    (folder / name).write_text(FILES[name] + "# edited\n")
    assert key() != before
    (folder / name).write_text(FILES[name])
    assert key() == before


@pytest.mark.parametrize("name", ["unrelated.py", "notes.txt", "new.py"])
def test_an_edit_of_anything_else_does_not(folder: Path, key: Callable[..., str | None], name: str) -> None:
    before = key()
    (folder / name).write_text("changed = True\n")
    assert key() == before


def test_arguments_count_with_their_placeholders_unfilled(folder: Path, key: Callable[..., str | None]) -> None:
    assert key() == key(*COMMAND)
    assert key() != key("train.py", "--config=config.yaml", "--batch-size", "{global_batch}")
    assert key("train.py", "--config", "config.yaml") != key("train.py", "--config")
    ran = ran_here(folder, COMMAND, in_python=True)
    assert ran.command == "train.py --config=config.yaml --batch-size '{gpu_batch}'"


def test_one_script_may_be_named_in_several_ways(folder: Path, key: Callable[..., str | None]) -> None:
    assert key("./train.py", *COMMAND[1:]) == key("nets/../train.py", *COMMAND[1:]) == key()
    assert ran_here(folder, ("./train.py",), in_python=True).command == "train.py"
    assert ran_in_image(("./train.py",), None).key == ran_in_image(("train.py",), None).key


def test_the_folder_may_be_called_otherwise(folder: Path, key: Callable[..., str | None]) -> None:
    before = key()
    moved = folder.rename(folder.with_name("elsewhere"))
    assert ran_here(moved, COMMAND, in_python=True).key == before


def test_major_and_minor_of_the_software_here_count(
    folder: Path, key: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": "2.13.0+cpu"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: versions[name])
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.7")
    before, program = key(), ran_here(folder, COMMAND, in_python=False).key
    versions["torch"] = "2.13.1"
    assert key() == before
    versions["torch"] = "2.14.0"
    assert key() != before
    assert ran_here(folder, COMMAND, in_python=False).key == program
    monkeypatch.setattr(platform, "python_version", lambda: "3.12.1")
    versions["torch"] = "2.13.0"
    assert key() != before


def test_an_image_stands_for_its_software(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ran_here(folder, COMMAND, in_python=True, image="sha256:1").key
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    assert ran_here(folder, COMMAND, in_python=True, image="sha256:1").key == before
    assert ran_here(folder, COMMAND, in_python=True, image="sha256:2").key != before


def test_on_rented_nodes_the_image_holds_the_script() -> None:
    ran = ran_in_image(COMMAND, "registry.example.com/train@sha256:1")
    assert ran.script_sha256 is None
    assert ran.key == ran_in_image(COMMAND, "mirror.example.com/train@sha256:1").key
    assert ran.key != ran_in_image(COMMAND, "registry.example.com/train@sha256:2").key
    assert ran.key != ran_in_image((*COMMAND, "--more"), "registry.example.com/train@sha256:1").key


def test_programs_data_and_what_lies_elsewhere(folder: Path) -> None:
    assert script_sha256(folder, ("python", "-c", "pass")) is None
    (folder / "program").write_text("#!/bin/sh\n")
    before = script_sha256(folder, ("./program",))
    assert before is not None
    started = script_sha256(folder, ("train.py", "program"))
    (folder / "program").write_text("#!/bin/bash\n")
    assert script_sha256(folder, ("train.py", "program")) != started
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "data.json").write_bytes(b" " * (1 << 20) + b"1")  # larger than a configuration
    assert script_sha256(folder, ("./program", "--data", "data.json")) == before
    assert script_sha256(folder, ("./program", "../outside.py", "/etc/passwd", "a\0b", "x" * 5000)) == before


def test_a_script_that_python_cannot_read_still_has_a_key(folder: Path) -> None:
    digests = set()
    for text in ("def broken(:\n", "\0", "\udcff", "(" * 5000):
        (folder / "train.py").write_bytes(text.encode("utf-8", errors="surrogateescape"))
        digests.add(script_sha256(folder, ("train.py",)))
    assert len(digests) == 4
    assert None not in digests


def test_nothing_above_the_folder_is_reached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text("import helpers\nfrom .. import lazily\nfrom ..... import train\n")
    (job / "__init__.py").touch()
    digests = {script_sha256(job, ("train.py",))}
    monkeypatch.chdir(folder)
    digests.add(script_sha256(Path("job"), ("train.py",)))
    monkeypatch.chdir(job)
    digests.add(script_sha256(Path(), ("train.py",)))
    (folder / "helpers.py").write_text("changed = True\n")
    (folder / "lazily.py").write_text("changed = True\n")
    digests.add(script_sha256(job, ("train.py",)))
    assert len(digests) == 1


def test_modules_that_import_each_other_end(folder: Path) -> None:
    (folder / "one.py").write_text("import two\n")
    (folder / "two.py").write_text("import one\n")
    assert script_sha256(folder, ("one.py",)) == script_sha256(folder, ("two.py",))  # the same two files
