"""examples/tiny-llama: the same training whatever its strategy, measured so, and continued by other processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "tiny-llama"
GLOBAL_BATCH = 8


def start(
    folder: Path, *arguments: str, processes: int, parts: int | None = None, nodes: int = 1, **environment: str
) -> list[subprocess.Popen[str]]:
    """On each node a launcher; of a batch each of `parts`, or else each process, takes its share."""
    batch = GLOBAL_BATCH // (parts or processes)
    port = free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={node}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", f"--nproc-per-node={processes // nodes}"),
                *arguments,
            ],
            cwd=EXAMPLE,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                "OMP_NUM_THREADS": "1",
                "SCAV_GPU_BATCH": str(batch),
                "SCAV_CHECKPOINT_DIR": str(folder),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(nodes)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def said(launchers: list[subprocess.Popen[str]]) -> str:
    outputs = [launcher.communicate(timeout=PATIENCE_SECONDS)[0] for launcher in launchers]
    assert all(launcher.returncode == 0 for launcher in launchers), "\n".join(outputs)
    return outputs[0]


def losses(output: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", output)}


def trained(folder: Path, *arguments: str, steps: int = 20, **options: Any) -> dict[int, float]:
    words = ("train.py", "--steps", str(steps), "--log-every", "1", *arguments)
    return losses(said(start(folder, *words, **options)))


def strategy(**asked: str | int) -> str:
    return json.dumps(asked)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """One process, nothing spread."""
    curve = trained(tmp_path_factory.mktemp("plain"), steps=40, processes=1)
    assert len(curve) == 40
    return curve


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"sharding": "ddp"}, {"processes": 2}),
        ({"sharding": "fsdp"}, {"processes": 1}),
        ({"sharding": "fsdp"}, {"processes": 2}),
        ({"sharding": "fsdp"}, {"processes": 4}),
        ({"sharding": "zero2", "recompute": "selective"}, {"processes": 2}),
        ({"sharding": "hsdp", "recompute": "full"}, {"processes": 4, "nodes": 2}),
        ({"sharding": "fsdp", "tensor_parallel": 2}, {"processes": 4, "parts": 2}),
        ({"sharding": "ddp", "tensor_parallel": 2, "recompute": "full"}, {"processes": 2, "parts": 1}),
    ],
    ids=lambda value: "-".join(f"{part}" for part in value.values()),
)
def test_every_strategy_trains_the_same_model(
    tmp_path: Path, plain: dict[int, float], asked: dict[str, str | int], options: dict[str, int]
) -> None:
    curve = trained(tmp_path, SCAV_STRATEGY=strategy(**asked), **options)
    assert len(curve) == 20
    assert curve == pytest.approx({step: plain[step] for step in curve}, rel=1e-4)


def test_it_learns_what_can_be_known_and_adapters_learn_too(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", steps=250, processes=1)
    assert whole[1] > 3
    assert sum(whole[step] for step in range(231, 251)) / 20 < 0.4  # what is left is guesswork
    fsdp = strategy(sharding="fsdp")
    adapters = trained(tmp_path / "lora", "--lora", "4", steps=60, processes=2, SCAV_STRATEGY=fsdp)
    assert adapters[60] < adapters[1] - 0.5


def test_saved_by_four_killed_and_continued_by_two(tmp_path: Path, plain: dict[int, float]) -> None:
    """kill -9 of all four, whatever they are writing; two others read what was whole."""
    saving = {"SCAV_STRATEGY": strategy(sharding="fsdp"), "SCAV_CHECKPOINT_INTERVAL_SECONDS": "0"}
    words = ("train.py", "--steps", "100000", "--log-every", "1")
    (launcher,) = start(tmp_path, *words, processes=4, **saving)
    assert launcher.stdout is not None
    seen = ""
    for line in launcher.stdout:
        seen += line
        if "step 10:" in line:
            break
    for process in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        os.kill(int(process), signal.SIGKILL)
    launcher.communicate(timeout=PATIENCE_SECONDS)
    # The newest: the one before it goes only when this one is whole.
    whole = max(path.name for path in tmp_path.iterdir() if not path.name.endswith(".unfinished"))
    (tmp_path / "step-000000999.unfinished").mkdir()  # as a later save would have left it
    output = said(start(tmp_path, "train.py", "--steps", "40", "--log-every", "1", processes=2, **saving))
    first = int(re.search(r"fsdp on 2, from step (\d+)", output)[1])
    assert first == int(whole.removeprefix("step-")) >= 1, seen + output
    curve = losses(output)
    assert list(curve) == list(range(first + 1, 41))
    assert curve == pytest.approx({step: plain[step] for step in curve}, rel=1e-4)
    assert [path.name.partition(".")[2] for path in tmp_path.iterdir()] == [""]  # one, and it is whole


def test_sigterm_saves_the_last_step_and_exits_with_13(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "SCAV_CHECKPOINT_DIR": str(tmp_path)}
    command = [sys.executable, "train.py", "--log-every", "1"]
    process = subprocess.Popen(
        command, cwd=EXAMPLE, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert any("step 5:" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 13
    (saved,) = tmp_path.iterdir()
    assert int(saved.name.removeprefix("step-")) == max(losses(rest), default=5)


# A busy machine warms up longer, and which batches the noise is measured with follows from the step.
WARM_AT_ONCE = """
import runpy
from probes import windows
windows.is_warm = lambda seconds: True
runpy.run_path("train.py", run_name="__main__")
"""


def probed(folder: Path, state: Path, **options: Any) -> dict[str, Any]:
    output, script = folder / "probe.json", folder / "warm_at_once.py"
    script.write_text(WARM_AT_ONCE)
    short = {"SCAV_PROBE_WINDOWS": "2", "SCAV_PROBE_WINDOW_STEPS": "5", "SCAV_PROBE_NOISE_STATE": str(state)}
    said(start(folder, "-m", "--", "probes.run", str(script), SCAV_PROBE_OUTPUT=str(output), **short, **options))
    record: dict[str, Any] = json.loads(output.read_text())
    assert record["outcome"] == "measured", record
    return record


def test_probes_of_one_two_and_four_processes(tmp_path: Path) -> None:
    """At one state all see the same noise, to the last digits that are there: gradients are the same in shards."""
    asked = {"sharding": "fsdp", "tensor_parallel": 1, "pipeline": 1, "recompute": "none"}
    state = tmp_path / "state.pt"
    records = {count: probed(tmp_path, state, processes=count, SCAV_STRATEGY=strategy(**asked)) for count in (1, 2, 4)}
    whole = probed(tmp_path, state, processes=1)
    for count, record in records.items():
        assert (record["strategy"], record["gpus_per_node"], record["parameters"]) == (asked, count, 201_280)
        assert record["gpu_batch"] * count == GLOBAL_BATCH
        assert record["samples_per_step"] == record["gpu_batch"]
        assert "exposed_sync_seconds" not in record
        assert record["peak_memory_bytes"] > 1e8
        assert record["checkpoint_bytes"] > 3 * record["gradient_bytes"]
        assert record["checkpoint_restore_seconds"] > 0
        assert ("allgather" in record) == ("reduce_scatter" in record) == (count > 1)
        assert record["noise"]["state"] == whole["noise"]["state"]
        assert record["noise"]["scale"] == pytest.approx(whole["noise"]["scale"], rel=1e-4)
    block = 4 * (2 * 64 + 64 * (64 + 2 * 32 + 64) + 3 * 64 * 192)
    assert records[2]["allgather"][0]["bytes"] == records[4]["reduce_scatter"][0]["bytes"] == block
    assert "strategy" not in whole
