"""What of `run.source` travels with a plan."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.outside.source import load_source


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    return folder


def test_text_files_travel_by_their_names_in_order(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "lib/b.py", "lib/a.py", "README")
    assert load_source(tmp_path) == {
        "source/README": "# README\n",
        "source/lib/a.py": "# lib/a.py\n",
        "source/lib/b.py": "# lib/b.py\n",
        "source/train.py": "# train.py\n",
    }


def test_hidden_files_caches_and_workspaces_stay(tmp_path: Path) -> None:
    make(
        tmp_path,
        "train.py",
        ".env",
        ".git/config",
        "__pycache__/train.pyc",
        "w/scav.plan.json",
        "w/main.tf",
        "a.tfplan",
    )
    assert list(load_source(tmp_path)) == ["source/train.py"]


def test_what_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path, "train.py")
    (tmp_path / "weights.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"weights\.bin.*no text"):
        load_source(tmp_path)


def test_too_much_is_refused(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}.py" for number in range(501)))
    with pytest.raises(InputError, match="more than 500 files"):
        load_source(tmp_path)
    for number in range(5):
        (tmp_path / "large").mkdir(exist_ok=True)
        (tmp_path / "large" / f"{number}.txt").write_text("x" * (1 << 20))
    with pytest.raises(InputError, match="more than 4 MiB"):
        load_source(tmp_path / "large")


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"names no folder|holds no files"):
        load_source(tmp_path / name)
