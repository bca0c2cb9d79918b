"""From one saved checkpoint of the example, one, two and four processes print the same noise within their intervals."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "digits-cnn" / "train.py"
BATCH = 64
# The example, trained for a little while.
CHECKPOINT = f"""
import itertools, runpy, torch
example = runpy.run_path({str(EXAMPLE)!r})
torch.manual_seed(0)
model, (train, _) = example["DigitsCnn"](), example["load"]()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
shuffle = torch.Generator().manual_seed(1)
loader = torch.utils.data.DataLoader(train, batch_size={BATCH}, shuffle=True, drop_last=True, generator=shuffle)
for images, labels in itertools.islice(loader, 20):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
torch.save(model.state_dict(), "checkpoint.pt")
"""
# The example as it is, but for its weights; with SCAV_LR_SCALE=0 they stay what they are.
SCRIPT = f"""
import runpy, torch
example = runpy.run_path({str(EXAMPLE)!r})
class Saved(example["DigitsCnn"]):
    def __init__(self):
        super().__init__()
        self.load_state_dict(torch.load("checkpoint.pt"))
example["main"].__globals__["DigitsCnn"] = Saved
example["main"]()
"""
# All processes of all three probes at once, from one that has imported everything already, which takes longest. The
# warm-up has the same length however busy the machine is, so that the noise is measured on the same samples every time.
PROBES = """
import os, runpy, socket, sys
import sklearn.datasets, torch._dynamo
from probes import run, session

def start(work):
    child = os.fork()
    if child == 0:
        sys.exit(work())
    return child

def probe(size, rank, port):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "SCAV_PROBE_OUTPUT": f"{size}.json"}
    session.LONGEST_WARM_UP = 20
    return run.main(["saved.py"])

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

os.waitpid(start(lambda: runpy.run_path("checkpoint.py") and 0), 0)
ports = {size: free_port() for size in (1, 2, 4)}
children = [start(lambda: probe(size, rank, port)) for size, port in ports.items() for rank in range(size)]
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_intervals_of_one_two_and_four_processes_overlap(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.py").write_text(CHECKPOINT)
    (tmp_path / "saved.py").write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "-c", PROBES],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
            "SCAV_GPU_BATCH": str(BATCH),
            "SCAV_LR_SCALE": "0",
            "SCAV_PROBE_WINDOWS": "1",
            "SCAV_PROBE_WINDOW_STEPS": "1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    noise = {size: json.loads((tmp_path / f"{size}.json").read_text())["noise"] for size in (1, 2, 4)}
    assert all(one["reached"] for one in noise.values()), noise
    printed = [(float(f"{one['low']:.0f}"), float(f"{one['high']:.0f}")) for one in noise.values()]
    for (low, high), (other_low, other_high) in itertools.combinations(printed, 2):
        assert low <= other_high, printed
        assert other_low <= high, printed
