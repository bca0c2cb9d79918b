"""A script that knows nothing of scav, run under torchrun and measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

REPOSITORY = Path(__file__).resolve().parents[2]

SCRIPT = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
rank = int(os.environ.get("RANK", 0))
torch.manual_seed(rank)  # every process starts from other weights: only DDP makes them equal
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
while True:
    for x, y in DataLoader(data, batch_size=int(os.environ["SCAV_GPU_BATCH"]), shuffle=True, drop_last=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        {check}
        optimizer.step()
"""
OWN_DDP = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
"""
# In the first windows gradients are averaged over the processes, so all of them must have the same.
SAME_GRADIENTS = """
        import torch.distributed as dist
        if dist.is_initialized() and not hasattr(model, "checked"):
            model.checked = True
            mine = next(model.parameters()).grad.clone()
            theirs = mine.clone()
            dist.broadcast(theirs, src=0)
            assert torch.equal(mine, theirs), "gradients were not averaged"
"""


def probe(tmp_path: Path, script: str, processes: int = 1, **environment: str) -> dict[str, Any]:
    (tmp_path / "train.py").write_text(script)
    output = tmp_path / "probe.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    finished = subprocess.run(
        [*torchrun, "-m", "probes.run", "train.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
            "SCAV_GPU_BATCH": "32",
            "SCAV_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            "SCAV_PROBE_OUTPUT": str(output),
            "SCAV_PROBE_WINDOWS": "2",
            "SCAV_PROBE_WINDOW_STEPS": "5",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    record: dict[str, Any] = json.loads(output.read_text())
    return record


@pytest.mark.slow
@pytest.mark.parametrize("wrap", ["", OWN_DDP], ids=["no DDP in the script", "the script's own DDP"])
def test_an_unchanged_script_is_measured_on_two_processes(tmp_path: Path, wrap: str) -> None:
    record = probe(tmp_path, SCRIPT.format(wrap=wrap, check=SAME_GRADIENTS), processes=2)
    assert record["outcome"] == "measured"
    assert (record["nodes"], record["gpus_per_node"], record["gpu_batch"]) == (1, 2, 32)
    assert 0 < record["step_seconds"] <= record["step_seconds_p90"]
    assert 0 <= record["exposed_sync_seconds"] < record["step_seconds"]
    assert record["allreduce"][0]["bytes"] == record["gradient_bytes"] == 4 * record["parameters"]
    assert record["parameters"] == 64 * 256 + 256 + 256 * 8 + 8
    assert record["checkpoint_bytes"] > 2 * record["gradient_bytes"]  # weights and momentum
    assert record["noise"]["low"] <= record["noise"]["scale"] <= record["noise"]["high"]
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.slow
def test_one_process_has_no_communication_and_waits_for_its_data(tmp_path: Path) -> None:
    slow_data = "import time; time.sleep(0.01)"
    script = SCRIPT.replace("TensorDataset(torch.randn", "Slow(torch.randn").replace(
        "rank = int", f"class Slow(TensorDataset):\n    def __getitem__(self, i):\n        {slow_data}\n"
        "        return super().__getitem__(i)\nrank = int"
    )  # fmt: skip
    record = probe(tmp_path, script.format(wrap="", check=""), SCAV_GPU_BATCH="2", SCAV_PROBE_NOISE="0")
    assert "exposed_sync_seconds" not in record
    assert "allreduce" not in record
    assert "noise" not in record
    assert 0.02 <= record["data_wait_seconds"] <= record["step_seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["num_workers=0", "num_workers=2", "num_workers=1, multiprocessing_context='spawn'"])
def test_what_loading_takes_of_a_processor_is_measured_wherever_it_happens(tmp_path: Path, loader: str) -> None:
    """5 ms of processor time for each sample, however long they take on a busy machine."""
    (tmp_path / "slow_data.py").write_text(
        "import time\nfrom torch.utils.data import TensorDataset\n"
        "class Slow(TensorDataset):\n    def __getitem__(self, i):\n        begin = time.thread_time()\n"
        "        while time.thread_time() < begin + 0.005: pass\n        return super().__getitem__(i)\n"
    )
    body = SCRIPT.format(wrap="", check="").replace("TensorDataset(torch", "Slow(torch")
    body = body.replace("drop_last=True", f"drop_last=True, {loader}").replace(
        "while True:", "if __name__ == '__main__':"
    )
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom slow_data import Slow\n{body}"
    options = {"SCAV_GPU_BATCH": "4", "SCAV_PROBE_NOISE": "0", "SCAV_PROBE_WINDOW_STEPS": "20"}
    record = probe(tmp_path, script, **options)
    assert 0.0035 <= record["input_cpu_seconds_per_sample"] <= 0.01


@pytest.mark.slow
def test_a_script_that_ends_too_early_says_so(tmp_path: Path) -> None:
    record = probe(tmp_path, SCRIPT.replace("while True:", "for _ in range(0):").format(wrap="", check=""))
    assert record["outcome"] == "too_few_steps"
    assert "0 optimizer steps" in record["reason"]


@pytest.mark.slow
def test_running_out_of_memory_is_a_result_not_a_crash(tmp_path: Path) -> None:
    script = "import torch\nraise torch.OutOfMemoryError('CUDA out of memory')\n"
    assert probe(tmp_path, script)["outcome"] == "out_of_memory"


# Whoever takes the interpreter apart waits for this thread first, for ever.
ENDLESS_THREAD = """
import atexit, pathlib, threading
threading.Thread(target=threading.Event().wait).start()
atexit.register(pathlib.Path("left.txt").write_text, "in order")
"""


@pytest.mark.slow
def test_a_finished_probe_ends_without_taking_the_interpreter_apart(tmp_path: Path) -> None:
    script = ENDLESS_THREAD + SCRIPT.format(wrap="", check="")
    assert probe(tmp_path, script, SCAV_PROBE_NOISE="0")["outcome"] == "measured"
    assert (tmp_path / "left.txt").read_text() == "in order"


MARKED = """
import os, torch
from torch import nn
from probes import scav_probe
model = nn.Linear(8, 8)
one, other = (torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2))
batches = (torch.randn(int(os.environ["SCAV_GPU_BATCH"]), 8) for _ in range(10_000))
{loop}
        for optimizer in (one, other, one):  # three optimizer steps are one step of this script
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
        import time; time.sleep(0.005)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop",
    [
        "if True:\n    for x in scav_probe.steps(batches):",
        "for x in batches:\n    with scav_probe.step(samples=len(x)):",
    ],
    ids=["steps", "step"],
)
def test_a_script_can_say_itself_what_a_step_is(tmp_path: Path, loop: str) -> None:
    record = probe(tmp_path, MARKED.format(loop=loop), SCAV_PROBE_NOISE="0")
    assert record["outcome"] == "measured"
    assert record["step_seconds"] >= 0.005


def follow(tmp_path: Path, samples: str, **environment: str) -> dict[str, Any]:
    program = (
        "import json, os, time\n"
        "file = open(os.environ['SCAV_PROBE_STEPS'], 'a', buffering=1)\n"
        "for step in range(10_000):\n"
        f"    line = {{'step_seconds': 0.5 if step < 20 else 0.25, 'data_wait_seconds': 0.1, {samples}}}\n"
        "    file.write(json.dumps(line) + '\\n')\n"
        "    time.sleep(0.001)\n"
    )
    output = tmp_path / "probe.json"
    asked = {"SCAV_PROBE_OUTPUT": str(output), "SCAV_GPU_BATCH": "4", "SCAV_GLOBAL_BATCH": "8"}
    subprocess.run(
        [sys.executable, "-m", "probes.follow", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **asked, **environment},
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    record: dict[str, Any] = json.loads(output.read_text())
    return record


def test_any_program_can_report_its_steps(tmp_path: Path) -> None:
    record = follow(tmp_path, "'samples': 8")
    assert (record["step_seconds"], record["data_wait_seconds"], record["gpus_per_node"]) == (0.25, 0.1, 2)
    assert (record["gpu_batch"], record["asked_gpu_batch"], record["batch_source"]) == (4, 4, "stated")


@pytest.mark.parametrize(
    ("samples", "words"),
    [("'samples': 6", "took 6 samples per step, asked for 8"), ("", "does not say how many samples its steps take")],
)
def test_a_program_whose_steps_are_others_or_untold_is_refused(tmp_path: Path, samples: str, words: str) -> None:
    record = follow(tmp_path, samples)
    assert record["outcome"] == "other_batch"
    assert words in record["reason"]


def test_the_user_may_state_what_a_program_does_not_say(tmp_path: Path) -> None:
    assert follow(tmp_path, "", SCAV_PROBE_SAMPLES_ARE_STATED="1")["outcome"] == "measured"
