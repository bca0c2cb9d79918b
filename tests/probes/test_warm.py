"""Workers that are copies of a process which has imported PyTorch: what they are told, and how they end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

from planner.errors import ScavError
from planner.outside.runners.warm_start import WarmProcesses

SCRIPT = """
import os, random, sys, time
with open(f"rank-{os.environ['RANK']}", "w") as said:
    said.write(f"{os.environ['MASTER_PORT']} {os.environ['WORLD_SIZE']} {sys.argv[1]} {random.random()}")
if os.environ["RANK"] == os.environ.get("FAILS"):
    sys.exit(3)
time.sleep(float(os.environ.get("SLEEPS", "0")))
"""
WORKERS = 6


def environment(folder: Path, **more: str) -> dict[str, str]:
    own = {"SCAV_PROBE_STRETCH": "run", "SCAV_PROBE_OUTPUT": str(folder / "refused.json")}
    return {**os.environ, **own, **more}


@pytest.mark.slow
def test_workers_are_told_what_torchrun_tells_and_the_first_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with WarmProcesses("of-this-test") as warm:
        warm.wait_until_ready()
        log = tmp_path / "log.txt"
        chances = set()
        for _ in range(3):  # each of them a start of its own
            started = warm.start(
                WORKERS, ["script.py", "word"], folder=tmp_path, environment=environment(tmp_path), log=log
            )
            assert started.wait(PATIENCE_SECONDS) == 0, log.read_text()
            said = [(tmp_path / f"rank-{rank}").read_text().split() for rank in range(WORKERS)]
            assert len({port for port, *_ in said}) == 1
            assert {tuple(rest[:2]) for _, *rest in said} == {(str(WORKERS), "word")}
            chances |= {chance for *_, chance in said}
        assert len(chances) == 3 * WORKERS  # no two begin with the same chance
        began = time.monotonic()
        own = environment(tmp_path, FAILS="1", SLEEPS=str(2 * PATIENCE_SECONDS))
        started = warm.start(2, ["script.py", "word"], folder=tmp_path, environment=own, log=log)
        assert started.wait(PATIENCE_SECONDS) == 3
        assert time.monotonic() - began < PATIENCE_SECONDS
        os.kill(warm.pid, 9)
        with pytest.raises(ScavError, match="was killed"):
            warm.start(1, ["script.py", "word"], folder=tmp_path, environment=own, log=log)
