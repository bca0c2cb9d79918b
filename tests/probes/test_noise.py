"""The gradient noise estimate against an exact reference, and over processes against micro-batches."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

torch = pytest.importorskip("torch")

from probes import after_steps  # noqa: E402
from probes.noise import GradientCollector, GradientGroup, NoiseEstimate, _student_t95, estimate  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
BATCH, SAMPLES = 16, 64

# Saved once and loaded by every process: separately trained models would show chaos, not noise.
COMMON = """
import torch
from torch import nn
def model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
def data(samples):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(samples, 12, generator=generator), torch.randint(0, 3, (samples,), generator=generator)
def loss(network, x, y):
    return nn.functional.cross_entropy(network(x), y)
"""
namespace: dict[str, object] = {}
exec(COMMON, namespace)  # noqa: S102 (the same text runs in the worker processes below)


def groups_of_one_process(micro_batches: int, repeats: int = 1) -> list[GradientGroup]:
    network = namespace["model"]()
    x, y = namespace["data"](BATCH * micro_batches * repeats)
    collector = GradientCollector(network.parameters(), BATCH)
    collector.micro_batches = micro_batches
    for start in range(0, len(x), BATCH):
        network.zero_grad()
        namespace["loss"](network, x[start : start + BATCH], y[start : start + BATCH]).backward()
        collector.take()
    return collector.groups


def test_norms_equal_those_of_exact_per_sample_gradients() -> None:
    from torch.func import functional_call, grad, vmap

    network = namespace["model"]()
    weights = {name: value.detach() for name, value in network.named_parameters()}
    x, y = namespace["data"](SAMPLES)

    def loss_of_one(parameters, sample, label):
        scores = functional_call(network, parameters, (sample.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(scores, label.unsqueeze(0))

    per_sample = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(weights, x, y)
    flat = torch.cat([value.reshape(SAMPLES, -1) for value in per_sample.values()], dim=1).double()
    micro = flat.reshape(SAMPLES // BATCH, BATCH, -1).mean(dim=1)
    (group,) = groups_of_one_process(SAMPLES // BATCH)
    assert group.mean_squared_norm == pytest.approx(float(micro.square().sum(dim=1).mean()), rel=1e-4)
    assert group.squared_norm_of_mean == pytest.approx(float(flat.mean(dim=0).square().sum()), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_equal_micro_batches(processes: int, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        COMMON
        + f"""
import json, sys
import torch.distributed as dist
from probes.cluster import join, this_place
from probes import after_steps  # noqa: E402
from probes.noise import GradientCollector
place = this_place()
join(place)
network = model()
x, y = data({BATCH} * place.world_size)
part = slice(place.rank * {BATCH}, (place.rank + 1) * {BATCH})
collector = GradientCollector(network.parameters(), {BATCH})
collector.micro_batches = 1
loss(network, x[part], y[part]).backward()
collector.take()
if place.rank == 0:
    group = collector.groups[0]
    print(json.dumps([group.count, group.mean_squared_norm, group.squared_norm_of_mean]))
dist.destroy_process_group()
"""
    )
    output = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", str(worker)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    ).stdout
    (group,) = groups_of_one_process(processes)
    expected = [processes, group.mean_squared_norm, group.squared_norm_of_mean]
    assert json.loads(output.splitlines()[-1]) == pytest.approx(expected, rel=1e-4)


def test_recovers_a_noise_scale_that_is_known() -> None:
    """Gradients drawn around a known mean with a known variance per sample."""
    generator = torch.Generator().manual_seed(3)
    dimension, variance_per_sample, batch, count = 2000, 50.0, 8, 4
    mean = torch.ones(dimension, dtype=torch.float64) * math.sqrt(0.5 / dimension)
    groups = []
    for _ in range(200):
        noise = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
        gradients = mean + noise * math.sqrt(variance_per_sample / dimension / batch)
        groups.append(
            GradientGroup(
                count=count,
                batch=batch,
                mean_squared_norm=float(gradients.square().sum(dim=1).mean()),
                squared_norm_of_mean=float(gradients.mean(dim=0).square().sum()),
            )
        )
    found = estimate(groups)
    assert found.low < 100.0 < found.high
    assert found.scale == pytest.approx(100.0, rel=0.15)
    assert found.reached


def test_nine_of_ten_intervals_hold_the_truth() -> None:
    """Simulated probes of eight groups, the fewest: gradients of 64 samples around a known mean, noise scale 200."""
    generator = torch.Generator().manual_seed(11)
    probes, dimension = 400, 100
    noise = torch.randn(probes, 8, 4, dimension, generator=generator, dtype=torch.float64)
    gradients = noise * math.sqrt(200.0 / dimension / 64)
    gradients[..., 0] += 1.0
    held = 0
    for of_each, of_mean in zip(
        gradients.square().sum(-1).mean(-1).tolist(), gradients.mean(2).square().sum(-1).tolist(), strict=True
    ):
        found = estimate([GradientGroup(4, 64, each, mean) for each, mean in zip(of_each, of_mean, strict=True)])
        held += found.low <= 200.0 <= found.high
    assert held / probes == pytest.approx(0.90, abs=0.03)


def test_two_ways_to_group_the_same_gradients_agree_within_their_intervals() -> None:
    four, eight = (estimate(groups_of_one_process(count, repeats=64 // count)) for count in (4, 8))
    assert four.low <= eight.high
    assert eight.low <= four.high


def test_the_interval_is_a_jackknife_s_with_student_s_t() -> None:
    """Two groups of 2 x 1 samples: signals 2 and 4, variances 2 and 8, so 10 / 6; without either 8 / 4 and 2 / 2."""
    groups = [
        GradientGroup(count=2, batch=1, mean_squared_norm=m, squared_norm_of_mean=s) for m, s in ((4, 3), (12, 8))
    ]
    assert [(group.signal, group.variance) for group in groups] == [(2, 2), (4, 8)]
    found = estimate(groups)
    assert found.scale == pytest.approx(10 / 6)
    error = math.log(2) / 2  # the root of half of 2 (log 2 / 2)^2
    assert math.log(found.high / found.scale) == pytest.approx(_student_t95(1) * error)
    assert found.low * found.high == pytest.approx(found.scale**2)


@pytest.mark.parametrize(("degrees", "quantile"), [(7, 1.8946), (15, 1.7531), (63, 1.6694), (10**6, 1.6449)])
def test_student_s_t(degrees: int, quantile: float) -> None:
    assert _student_t95(degrees) == pytest.approx(quantile, rel=2e-3)


def test_says_when_it_is_not_narrow_enough() -> None:
    assert not NoiseEstimate(scale=100.0, low=70.0, high=140.0, groups=8).reached
    assert not estimate(groups_of_one_process(4)).reached


def test_gradients_that_are_not_numbers_are_left_out() -> None:
    good = groups_of_one_process(4, repeats=8)
    broken = GradientGroup(count=4, batch=BATCH, mean_squared_norm=math.nan, squared_norm_of_mean=math.nan)
    assert estimate([*good, broken]) == estimate(good)


@pytest.mark.parametrize(("extra", "fits"), [(40, True), (60, False)])
def test_noise_is_left_out_where_training_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, extra: int, fits: bool
) -> None:
    assert after_steps.has_room_for(1e18)  # no GPU here
    answers = {"is_available": True, "mem_get_info": (30, 100), "memory_reserved": 70, "max_memory_allocated": 50}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    assert after_steps.has_room_for(extra) is fits
