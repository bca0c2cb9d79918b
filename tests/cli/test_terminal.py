"""`scav plan` as a terminal shows it, at four widths; without colour where that is asked for; and in a pipe.

`pytest tests/cli/test_terminal.py --update-golden` rewrites tests/golden/terminal/. There an escape is written as ␛.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "terminal"
SCAV = [sys.executable, "-c", "from planner.cli import main; main()"]
PLAN = [*SCAV, "plan", "--out", "cluster"]


def environment(**changes: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    return {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", **changes}


def on_terminal(folder: Path, columns: int, command: list[str], **variables: str) -> str:
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=folder, env=environment(**variables), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0, sent.decode()
    return sent.decode().replace("\r\n", "\n")


def in_pipe(folder: Path, command: list[str], **variables: str) -> str:
    return subprocess.run(
        command, cwd=folder, env=environment(**variables), check=True, capture_output=True, text=True, encoding="utf-8"
    ).stdout


def without_codes(text: str) -> str:
    from rich.text import Text

    return Text.from_ansi(text).plain


def check_golden(name: str, text: str, update: bool) -> None:
    path, shown = GOLDEN / f"{name}.txt", text.replace("\x1b", "␛")
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_on_a_terminal(columns, write_job, tmp_path, update_golden):
    write_job()
    text = on_terminal(tmp_path, columns, PLAN)
    assert "\x1b[1m" in text
    assert "\x1b[36m" in text
    assert max(map(len, without_codes(text).splitlines())) <= columns
    check_golden(f"{columns}-columns", text, update_golden)


def test_with_no_color(write_job, tmp_path, update_golden):
    write_job()
    text = on_terminal(tmp_path, 80, PLAN, NO_COLOR="1")
    assert "\x1b[3" not in text
    check_golden("no-color", text, update_golden)


def test_in_a_pipe(write_job, tmp_path, update_golden):
    write_job()
    text = in_pipe(tmp_path, PLAN)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert not any(line.endswith(" ") for line in text.splitlines())
    check_golden("pipe", text, update_golden)


def test_a_review_is_in_colour_only_on_a_terminal(workspace, tmp_path):
    command = [*SCAV, "review", workspace.name, "--max-usd", "100000", "--against", workspace.name, "-v"]
    shown, piped = on_terminal(tmp_path, 80, command), in_pipe(tmp_path, command)
    assert "\x1b[32m" in shown
    assert "\x1b" not in piped
    assert [line.rstrip() for line in without_codes(shown).splitlines()] == piped.splitlines()


def test_a_pipe_is_as_wide_as_columns_says(write_job, tmp_path):
    write_job()
    wide, narrow = (in_pipe(tmp_path, PLAN, COLUMNS=columns).splitlines() for columns in ("200", "60"))
    assert max(map(len, narrow)) <= 60 < max(map(len, wide)) <= 200
