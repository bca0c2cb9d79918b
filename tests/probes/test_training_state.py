"""The parameters that noise is measured at: written by the first probe, read by the others, or from a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

torch = pytest.importorskip("torch")

from planner.inputs.measured_noise import measured_noise  # noqa: E402
from planner.outside.runners.aws.report import measurements_of  # noqa: E402
from probes import training_state  # noqa: E402
from probes.cluster import Place  # noqa: E402
from probes.instrument import Instrument  # noqa: E402
from probes.session import Session  # noqa: E402
from probes.settings import Settings  # noqa: E402
from probes.training_state import TrainingStage, fault, fingerprint, load, share  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
OWN = TrainingStage(181, 11_584)


def watched(seed: int, width: int = 6, beside: bool = False) -> Instrument:
    """A model as a probe knows it, with something that has no gradient; `beside` it the optimizer trains one more."""
    torch.manual_seed(seed)
    instrument = Instrument(Place(0, 1, 0, 1), lambda: None, lambda: None)
    instrument.model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width))
    instrument.model[1].running_mean.fill_(seed)
    extra = [torch.nn.Parameter(torch.randn(3))] if beside else []
    instrument.optimizer = torch.optim.SGD([*instrument.model.parameters(), *extra], lr=0.1)
    return instrument


def state_of(instrument: Instrument) -> str:
    return fingerprint(instrument.parameters())


class TestASweep:
    @pytest.mark.parametrize("beside", [False, True])
    def test_the_first_probe_s_parameters_are_every_later_one_s(self, tmp_path: Path, beside: bool) -> None:
        first, later = watched(1, beside=beside), watched(2, beside=beside)
        own = state_of(first)
        assert own != state_of(later)
        assert share(tmp_path / "state.pt", first, OWN) == OWN
        assert share(tmp_path / "state.pt", later, TrainingStage(400, 99_999)) == OWN
        assert state_of(first) == state_of(later) == own
        assert float(later.model[1].running_mean[0]) == 1.0
        assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]

    def test_another_model_keeps_its_own(self, tmp_path: Path) -> None:
        share(tmp_path / "state.pt", watched(1), OWN)
        other = watched(2, width=8)
        before = state_of(other)
        assert share(tmp_path / "state.pt", other, TrainingStage(7, 70)) == TrainingStage(7, 70)
        assert state_of(other) == before

    def test_a_disk_without_room_leaves_every_probe_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = watched(1)
        size = sum(4 * tensor.numel() for tensor in training_state.tensors_of(one).values())
        for free, written in ((2 * size, False), (2 * size + 1, True)):
            monkeypatch.setattr(training_state.shutil, "disk_usage", lambda _, free=free: type("", (), {"free": free}))
            assert share(tmp_path / "state.pt", one, OWN) == OWN
            assert (tmp_path / "state.pt").exists() is written

    def test_a_step_changes_the_state(self) -> None:
        one = watched(1)
        before = state_of(one)
        one.model(torch.randn(5, 4)).square().sum().backward()
        assert state_of(one) == before
        one.optimizer.step()
        assert state_of(one) != before

    def test_gradients_of_before_are_not_taken(self, tmp_path: Path) -> None:
        """A step with a closure begins with the gradients of the step before, of other parameters."""
        where = {"checkpoint_folder": tmp_path, "output": tmp_path / "probe.json", "noise_state": tmp_path / "state.pt"}
        settings = Settings(
            gpu_batch=5,
            accumulation_steps=1,
            windows=1,
            window_steps=1,
            measure_noise=True,
            samples_are_stated=True,
            **where,
        )
        session = Session(settings, Place(0, 1, 0, 1), started=0.0)
        session.instrument = watched(1)
        share(tmp_path / "state.pt", watched(2), OWN)
        session._end_timing()
        assert (state_of(session.instrument), session._stage) == (state_of(watched(2)), OWN)
        for taken in (0, 1, 2):
            session.before_step()
            assert len(session._collector._squared_norms) == taken


class TestACheckpoint:
    @pytest.mark.parametrize(
        "content",
        [
            lambda model: model.state_dict(),
            lambda model: {"step": 12, "model": model.state_dict(), "optimizer": {"state": {0: {"step": 1}}}},
            lambda model: {"global_step": 12, "state_dict": {f"net.{k}": v for k, v in model.state_dict().items()}},
            lambda model: {f"module.{k}": v for k, v in model.state_dict().items()},
            lambda model: {f"_orig_mod.{k}": v for k, v in model.state_dict().items()},
        ],
        ids=["plain", "as probes.checkpoints", "as Lightning", "of DDP", "compiled"],
    )
    def test_is_found_however_it_was_saved(self, tmp_path: Path, content: object) -> None:
        saved, model = watched(1), watched(2)
        torch.save(content(saved.model), tmp_path / "saved.pt")
        assert fault(tmp_path / "saved.pt", model) is None
        assert state_of(model) != state_of(saved)
        assert load(tmp_path / "saved.pt", model) in (TrainingStage(12, None), TrainingStage(None, None))
        assert state_of(model) == state_of(saved)

    def test_safetensors_are_read_too(self, tmp_path: Path) -> None:
        safetensors = pytest.importorskip("safetensors.torch")
        saved, model = watched(1), watched(2)
        safetensors.save_file(saved.model.state_dict(), tmp_path / "model.safetensors")
        assert load(tmp_path / "model.safetensors", model) == TrainingStage(None, None)
        assert state_of(model) == state_of(saved)

    def test_of_another_model_is_refused_in_words(self, tmp_path: Path) -> None:
        torch.save(watched(1, width=8).model.state_dict(), tmp_path / "saved.pt")
        assert fault(tmp_path / "saved.pt", watched(1)) == (
            "saved.pt is of another model: it has no 0.bias of 6, as the script's has"
        )

    def test_of_a_training_that_failed_is_refused(self, tmp_path: Path) -> None:
        state = watched(1).model.state_dict()
        state["0.bias"] = torch.full_like(state["0.bias"], torch.nan)
        torch.save(state, tmp_path / "saved.pt")
        assert "saved.pt holds numbers that are not finite (0.bias)" in (fault(tmp_path / "saved.pt", watched(1)) or "")

    def test_that_is_none_is_refused_in_words(self, tmp_path: Path) -> None:
        (tmp_path / "saved.pt").write_bytes(b"no tensors here")
        assert "saved.pt cannot be read as tensors" in (fault(tmp_path / "saved.pt", watched(1)) or "")
        (tmp_path / "saved.pt").write_bytes(b"junk\n")  # of which torch's unpickler makes a KeyError
        assert "saved.pt cannot be read as tensors" in (fault(tmp_path / "saved.pt", watched(1)) or "")
        torch.save(torch.ones(3), tmp_path / "saved.pt")
        assert "saved.pt is of another model" in (fault(tmp_path / "saved.pt", watched(1)) or "")


# At one state, however large the batches are, they measure the same noise; by itself every size comes to another. The
# warm-up has the same length however busy the machine is, so that the noise is measured on the same samples every time.
SCRIPT = """
import sys, torch
from torch import nn
from probes import session
session.LONGEST_WARM_UP = 20
batch = int(sys.argv[1])
torch.manual_seed(batch)
model = nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
draw = torch.Generator().manual_seed(batch)
while True:
    x = torch.randn(batch, 32, generator=draw)
    y = x[:, :4] + torch.randn(batch, 4, generator=draw)
    optimizer.zero_grad()
    (model(x) - y).square().sum(dim=1).mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_two_batch_sizes_of_a_sweep_measure_one_state(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    sweep = ["-m", "probes.sweep", "--batches", "16,64", "--reference-batch", "16", "--windows", "1"]
    finished = subprocess.run(
        [sys.executable, *sweep, "--window-steps", "3", "--", "train.py", "{gpu_batch}"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
            "SCAV_RESULTS_DIR": str(tmp_path),
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    records = [json.loads(line) for line in (tmp_path / "probes.jsonl").read_text().splitlines()]
    small, large = (record["noise"] for record in records)
    assert small["state"] == large["state"]
    assert (small["at_step"], small["at_samples"]) == (large["at_step"], large["at_samples"])
    assert small["at_samples"] == 16 * small["at_step"]
    assert max(small["low"], large["low"]) <= min(small["high"], large["high"]), (small, large)
    rows, failures = measurements_of(records, "local", "fp32", None)
    assert failures == []
    noise = measured_noise(rows)
    assert noise is not None
    assert noise.warnings == ()
