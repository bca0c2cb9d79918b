"""Placeholders in a command: replaced word by word, the same on this machine, on a node and in a plan."""

from __future__ import annotations

import pytest

from planner.inputs import ParallelStrategy, filled_command, holds_strategy, placeholder_fault
from probes.placeholders import batch_values, fill, hold_batch, hold_strategy, strategy_values
from probes.strategy import Strategy

NUMBERS = {"gpu_batch": 16, "accumulation_steps": 2, "global_batch": 128, "lr_scale": 0.5}


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{gpu_batch}", "16"),
        ("--batch={gpu_batch}x{accumulation_steps}", "--batch=16x2"),
        ("{global_batch}", "128"),
        ("{lr_scale}", "0.5"),
        ("{{gpu_batch}}", "{gpu_batch}"),
        ("{{anything}} {gpu_batch}", "{anything} 16"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("${a.b} {} { gpu_batch } {a,b} $(id); `id`", "${a.b} {} { gpu_batch } {a,b} $(id); `id`"),
        ("", ""),
    ],
)
def test_each_word_is_filled_for_itself_and_everywhere_alike(word: str, filled: str) -> None:
    command = ["train.py", word]
    assert placeholder_fault(command) is None
    assert filled_command(command, **NUMBERS) == ["train.py", filled]
    values = batch_values(gpu_batch=16, accumulation_steps=2, workers=4, reference_batch=256)
    assert fill(command, values) == ["train.py", filled]


@pytest.mark.parametrize(
    ("asked", "filled"),
    [
        ({}, "ddp 1 1 none"),
        ({"sharding": "hsdp", "tensor_parallel": 2, "pipeline": 3, "recompute": "full"}, "hsdp 2 3 full"),
    ],
)
def test_a_strategy_is_filled_everywhere_alike(asked: dict[str, object], filled: str) -> None:
    command = ["train.py", "{strategy} {tensor_parallel} {pipeline} {recompute}"]
    assert filled_command(command, **NUMBERS, strategy=ParallelStrategy(**asked)) == ["train.py", filled]
    assert fill(command, strategy_values(Strategy(**asked))) == ["train.py", filled]


@pytest.mark.parametrize("word", ["{strategy}", "{recompute}", "{{strategy}}", "{gpu_batch}", "strategy"])
def test_a_command_tells_of_the_strategy_or_does_not(word: str) -> None:
    assert holds_strategy([word]) == hold_strategy([word]) == (word in ("{strategy}", "{recompute}"))


def test_an_unknown_one_names_those_that_are_known() -> None:
    fault = placeholder_fault(["train.py", "--batch", "{gpu_batches}"])
    assert fault == (
        "{gpu_batches} is no placeholder: known are {gpu_batch}, {accumulation_steps}, {global_batch}, {lr_scale}, "
        "{strategy}, {tensor_parallel}, {pipeline}, {recompute}; the text itself is written {{gpu_batches}}"
    )


@pytest.mark.parametrize(
    ("word", "held"),
    [
        ("--batch={gpu_batch}", True),
        ("{accumulation_steps}", True),
        ("{global_batch}", True),
        ("{lr_scale}", False),
        ("{{gpu_batch}}", False),
        ("gpu_batch", False),
    ],
)
def test_a_command_holds_the_batch_or_does_not(word: str, held: bool) -> None:
    assert hold_batch(["train.py", word]) == held
