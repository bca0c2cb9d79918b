"""A command that a probe was given is written into a job file that has none, and nothing else changes there."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import parse_job, with_command

COMMAND = ("train.py", "--batch-size", "{gpu_batch}")
JOB = """\
# What we train.
name: small   # a name
workload:
  dataset_samples: 1M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  target: {epochs: 90, reference_batch: 256}
"""
IMAGE = f"image: registry.example.com/train@sha256:{'0' * 64}"
IN_JSON = json.dumps(yaml.safe_load(JOB))
WAYS = {
    "no run": ("", '\nrun:\n  command: ["train.py", "--batch-size", "{gpu_batch}"]\n'),
    "run with nothing in it": (
        "run:   # later\n",
        'run:\n  command: ["train.py", "--batch-size", "{gpu_batch}"]   # later\n',
    ),
    "run with another key": (
        f"run:\n    {IMAGE}   # ours\n",
        f'run:\n    command: ["train.py", "--batch-size", "{{gpu_batch}}"]\n    {IMAGE}   # ours\n',
    ),
    "run on one line": (
        f"run: {{{IMAGE}}}\n",
        f'run: {{command: ["train.py", "--batch-size", "{{gpu_batch}}"], {IMAGE}}}\n',
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_it_stands_in_run_and_every_comment_stays(name: str) -> None:
    run, remembered = WAYS[name]
    changed = with_command(JOB + run, COMMAND)
    assert changed == JOB + remembered
    assert parse_job(changed, file="x").job.run.command == COMMAND


@pytest.mark.parametrize(
    "text",
    [
        JOB + "run: {command: [other.py]}\n",
        JOB + "run:\n  command:   # nobody has said\n",
        JOB + "...\n",
        IN_JSON,
    ],
    ids=["another command", "an empty one", "an end of the document", "JSON"],
)
def test_a_file_that_cannot_take_it_is_left_alone(text: str) -> None:
    assert with_command(text, COMMAND) is None


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_words_of_every_kind_are_read_back_as_they_are(words: list[str]) -> None:
    changed = with_command(JOB, words)
    assert changed is None or parse_job(changed, file="x").job.run.command == tuple(words)
