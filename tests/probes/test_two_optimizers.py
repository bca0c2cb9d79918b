"""Optimizers that step together train one model; those that step in turn do not, and nothing is said of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from planner.inputs import LOCAL, InspectedScript
from planner.outside.runners import Interrupts, LocalRunner, Script, inspect_script
from planner.probing import Probe
from probes.cluster import Place
from probes.instrument import Instrument

SCRIPTS = Path(__file__).parent / "scripts"
PARAMETERS, FLOPS = 16 * 32 + 32 + 32 * 4 + 4, 2 * (2 * 16 * 32 + 3 * 32 * 4)


class Played:
    """Two optimizers with a weight each, and who was called back."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        words = ("before", "after", "other")
        self.instrument = Instrument(Place(0, 1, 0, 1), *(lambda word=word: self.heard.append(word) for word in words))
        self.first, self.second = (torch.optim.SGD([torch.nn.Parameter(torch.ones(n))], lr=0.1) for n in (2, 3))

    def go_backward(self) -> None:
        self.instrument.counter.went_backward()

    @contextmanager
    def watched(self) -> Iterator[None]:
        hooks = [
            register_optimizer_step_pre_hook(self.instrument._step_begins),
            register_optimizer_step_post_hook(self.instrument._step_ends),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def test_all_that_step_after_one_backward_are_of_one_step() -> None:
    played = Played()
    with played.watched():
        for _ in range(2):
            played.go_backward()
            played.first.step()
            played.second.step()
    assert played.heard == ["before", "after", "other"] * 2
    assert played.instrument.optimizers() == [played.first, played.second]
    assert [parameter.numel() for parameter in played.instrument.parameters()] == [2, 3]
    assert not played.instrument.steps_in_turn


def test_one_that_has_a_backward_of_its_own_is_no_part_of_the_step() -> None:
    played = Played()
    with played.watched():
        for _ in range(2):
            for optimizer in (played.first, played.second):
                played.go_backward()
                optimizer.step()
    assert played.instrument.steps_in_turn
    assert played.instrument.optimizers() == [played.first]
    assert played.instrument.counter.last.micro_steps == 0  # no module was called


def inspected(*command: str) -> InspectedScript:
    script = Script(folder=SCRIPTS, command=command).checked()
    with Interrupts() as interrupts:
        return inspect_script(script, longest_seconds=PATIENCE_SECONDS, interrupts=interrupts)


@pytest.mark.slow
def test_a_model_with_two_optimizers_is_inspected_as_with_one() -> None:
    found = inspected("two_optimizers.py")
    assert (found.trainable_parameters, found.flops_per_sample) == (PARAMETERS, FLOPS)
    assert (found.gpu_batch, found.accumulation_steps, found.samples_per_step) == (16, 1, 16)
    assert found.activation_bytes_per_sample is not None


@pytest.mark.slow
def test_what_several_optimizers_do_in_turn_is_not_taken_apart() -> None:
    found = inspected("two_optimizers.py", "--in-turn")
    assert found.trainable_parameters == PARAMETERS
    unknown = ("flops_per_sample", "activation_bytes_per_sample", "gpu_batch", "accumulation_steps")
    assert {found.missing[key].partition(",")[0] for key in unknown} == {"the script steps several optimizers in turn"}


@pytest.mark.slow
def test_a_probe_counts_the_parameters_of_both_and_holds_them_still() -> None:
    runner = LocalRunner(
        script=Script(folder=SCRIPTS, command=("two_optimizers.py",)).checked(),
        timeout_seconds=PATIENCE_SECONDS,
        windows=1,
        window_steps=4,
    )
    row = runner.run(Probe(LOCAL, 1, 1, 16, 1, "fp32"), reference_batch=16, measure_noise=True)
    assert (row.parameters, row.gradient_bytes, row.samples_per_step) == (PARAMETERS, 4 * PARAMETERS, 16.0)
    momentum, adamw = 16 * 32 + 32 * 4, 2 * (32 + 4)
    assert row.checkpoint_bytes is not None
    assert row.checkpoint_bytes > 4 * (PARAMETERS + momentum + adamw)
