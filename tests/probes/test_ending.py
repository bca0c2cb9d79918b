"""Leaving: what was left to be done at the end is done, and nothing takes the interpreter apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

REPOSITORY = Path(__file__).resolve().parents[2]

SCRIPT = """
import atexit, sys
import torch.distributed as dist
from torch.distributed import HashStore
from probes.ending import leave

class Kept:
    def __del__(self):
        print("taken apart")

sys.kept = Kept()
atexit.register(print, "at the end")
dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
leave({code})
print("group", dist.is_initialized())
{ending}
"""


@pytest.mark.parametrize(("code", "ending"), [(0, ""), (13, "sys.exit(13)")])
def test_a_script_leaves_with_its_code_and_its_last_words(code: int, ending: str) -> None:
    script = SCRIPT.format(code=code, ending=ending)
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "group False\nat the end\n", "")
