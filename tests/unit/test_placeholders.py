"""Placeholders in a command: replaced word by word, the same on this machine, on a node and in a plan."""

from __future__ import annotations

import pytest

from planner.inputs import filled_command, placeholder_fault
from probes.placeholders import batch_values, fill

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


def test_an_unknown_one_names_those_that_are_known() -> None:
    fault = placeholder_fault(["train.py", "--batch", "{gpu_batches}"])
    assert fault == (
        "{gpu_batches} is no placeholder: known are {gpu_batch}, {accumulation_steps}, {global_batch}, {lr_scale}; "
        "the text itself is written {{gpu_batches}}"
    )
