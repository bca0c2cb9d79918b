"""What an inspection makes of what it saw: numbers, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from probes.as_on_gpu import AsOnGpu
from probes.inspection_report import SecondMicroStep, Sighting, report
from probes.other_batches import Autocast, Call, input_bytes
from probes.work import WorkWatch

SAMPLES, KEPT = 4, 4000


class EveryPair(nn.Module):
    """Keeps a number for every pair of samples, as a contrastive loss does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return (self.scale * (samples @ samples.T)).exp()


def refuses_others(samples: torch.Tensor) -> None:
    if len(samples) != SAMPLES:
        raise ValueError("four, please")


def seen(module: nn.Module | None = None, **changes: Any) -> Sighting:
    module = module or nn.Linear(8, 2)
    call = Call(module, (torch.ones(SAMPLES, 8),), {}, Autocast.now())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    usual = {
        "modules": {id(module): module},
        "optimizers": {id(optimizer): optimizer},
        "second": SecondMicroStep(SAMPLES, KEPT, [call]),
        "samples_of_step": 2 * SAMPLES,
        "micro_steps": 2,
    }
    return Sighting(**{**usual, **changes})


def reported(sighting: Sighting, dtype: torch.dtype = torch.float32, stated: int | None = None) -> dict[str, Any]:
    work = WorkWatch()
    work.flops[dtype] = 96
    return report(sighting, work, AsOnGpu(), stated)


def test_everything_is_divided_by_the_samples_of_the_second_micro_step() -> None:
    found = reported(seen())
    assert [found[key] for key in ("gpu_batch", "accumulation_steps", "samples_per_step")] == [4, 2, 8]
    assert (found["flops_per_sample"], found["activation_bytes_per_sample"]) == (24, 1000)
    assert (found["trainable_parameters"], found["gradient_bytes"], found["constant_bytes"]) == (18, 72, 0)
    assert (found["precision"], found["optimizer"]) == ("fp32", "SGD")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (EveryPair, "what the model keeps does not grow in proportion to the batch"),
        (lambda: refusing(nn.Linear(8, 2)), "refuses another batch than the script's (ValueError: four, please)"),
    ],
    ids=["pairs", "one batch only"],
)
def test_what_is_kept_whatever_the_batch_may_stay_unknown(module: Callable[[], nn.Module], reason: str) -> None:
    found = reported(seen(module()))
    assert reason in found["missing"]["constant_bytes"]
    assert "constant_bytes" not in found
    assert found["activation_bytes_per_sample"] == KEPT / SAMPLES


def refusing(module: nn.Module) -> nn.Module:
    module.register_forward_pre_hook(lambda _, inputs: refuses_others(*inputs))
    return module


@pytest.mark.parametrize(("stated", "batch"), [(32, 16), (33, None)])
def test_stated_samples_are_shared_by_the_micro_steps_if_they_can_be(stated: int, batch: int | None) -> None:
    found = reported(seen(), stated=stated)
    assert (found["samples_per_step"], found.get("gpu_batch")) == (stated, batch)
    assert found.get("flops_per_sample") == (None if batch is None else 96 / batch)
    assert ("gpu_batch" in found["missing"]) is (batch is None)


def test_without_a_step_nothing_is_said_of_it() -> None:
    found = reported(seen(optimizers={}, samples_of_step=None, micro_steps=0))
    reason = "no optimizer stepped before the script ended, or its time was over"
    unknown = {"accumulation_steps", "samples_per_step", "checkpoint_bytes", "optimizer"}
    assert {key for key, why in found["missing"].items() if why == reason} == unknown
    assert found["flops_per_sample"] == 24


def test_of_optimizers_that_step_in_turn_only_sizes_are_known() -> None:
    found = reported(seen(in_turn=True))
    unknown = {"flops_per_sample", "activation_bytes_per_sample", "gpu_batch", "accumulation_steps"}
    assert {key for key, why in found["missing"].items() if "in turn" in why} == unknown
    assert found["trainable_parameters"] == 18


@pytest.mark.parametrize(
    ("dtype", "matmul", "precision"),
    [
        (torch.float32, "highest", "fp32"),
        (torch.float32, "high", "tf32"),
        (torch.bfloat16, "high", "bf16"),
        (torch.float64, "highest", None),
    ],
)
def test_the_precision_is_that_of_most_of_the_flops(dtype: torch.dtype, matmul: str, precision: str | None) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(matmul)
        assert reported(seen(), dtype).get("precision") == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_inputs_are_counted_once_and_what_a_module_made_is_not_one() -> None:
    data, module = torch.ones(SAMPLES, 8), nn.Linear(8, 8)
    made = module(data)
    calls = [Call(module, (data,), {}, ()), Call(module, (made,), {"mask": data}, ())]
    assert input_bytes(calls) == SAMPLES * 8 * 4
