"""Job files that say what cannot be, or hardly: each is refused or warned of, with the numbers that contradict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLOPS, KEPT = "flops_per_sample: 24.6 GFLOP", "activation_bytes_per_sample: 60MB"
PARAMETERS, TARGET, SAMPLES = "parameters: 25.6M", "epochs: 90", "dataset_samples: 1.28M"
BATCH, DEADLINE, BUDGET = "reference_batch: 256", "deadline: 24h", "budget: $400"

REFUSED = {
    "flops without a unit": (
        {FLOPS: "flops_per_sample: 24.6"},
        "scav.yaml:4: workload.flops_per_sample: 24.6 FLOP for a sample that keeps 60MB of activations: keeping takes",
    ),
    "activations without a unit": (
        {KEPT: "activation_bytes_per_sample: 60"},
        "scav.yaml:6: workload.activation_bytes_per_sample: 24.6 GFLOP for a sample that keeps 60B of activations: far",
    ),
    "parameters without a unit": ({PARAMETERS: "parameters: 25.6"}, "parameters: '25.6' is not a whole number"),
    "gradients without a unit": (
        {PARAMETERS: f"{PARAMETERS}\n  gradient_bytes: 102"},
        "gradient_bytes: 102B of gradients for 25.6 M parameters: 4e-06 bytes each; is the unit right (102MB)?",
    ),
    "gradients in the wrong unit": (
        {PARAMETERS: f"{PARAMETERS}\n  gradient_bytes: 102GB"},
        "gradient_bytes: 102GB of gradients for 25.6 M parameters: 4e+03 bytes each",
    ),
    "a checkpoint that holds no weights": (
        {PARAMETERS: f"{PARAMETERS}\n  checkpoint_bytes: 307kB"},
        "checkpoint_bytes: a checkpoint of 307kB for 25.6 M parameters: smaller than the weights at one byte each",
    ),
    "less than one batch": (
        {TARGET: "samples: 90"},
        "workload.target: 90 samples are less than one batch of 256",
    ),
    "a run of less than one batch": (
        {BATCH: f"{BATCH}\n  convergence: {{runs: [{{batch: 1024, samples: 90}}]}}"},
        "workload.convergence.runs.0: 90 samples are less than one batch of 1,024",
    ),
    "a deadline before the cluster has started": ({DEADLINE: "deadline: 1min"}, "instead of 1 min"),
    "a budget of cents": ({BUDGET: "budget: $0.01"}, "instead of $0.01"),
    "a sample larger than every GPU": (
        {KEPT: "activation_bytes_per_sample: 900GB", FLOPS: "flops_per_sample: 24.6 TFLOP"},
        "have too little GPU memory",
    ),
}
WARNED = {
    "parameters in ones": (
        {PARAMETERS: "parameters: 25"},
        "workload.parameters: 24.6 GFLOP for a sample and 25 parameters: each would be used 164 M times; is a unit",
    ),
    "flops in the wrong unit": (
        {FLOPS: "flops_per_sample: 24.6 MFLOP"},
        "workload.flops_per_sample: 24.6 MFLOP for a sample that keeps 60MB of activations: few even for networks",
    ),
    "fewer flops than twice the parameters": (
        {FLOPS: "flops_per_sample: 24.6 MFLOP", KEPT: "activation_bytes_per_sample: 60kB"},
        "workload.flops_per_sample: 24.6 MFLOP for a sample and 25.6 M parameters: less than the 51.2 MFLOP of using",
    ),
    "activations in the wrong unit": (
        {KEPT: "activation_bytes_per_sample: 6kB"},
        "workload.activation_bytes_per_sample: 24.6 GFLOP for a sample that keeps 6kB of activations: few unless",
    ),
    "a checkpoint without half of the weights": (
        {PARAMETERS: f"{PARAMETERS}\n  checkpoint_bytes: 30MB"},
        "workload.checkpoint_bytes: a checkpoint of 30MB for 25.6 M parameters: 1.2 bytes each, usual are 4 to 16",
    ),
    "gradients of a byte": (
        {PARAMETERS: f"{PARAMETERS}\n  gradient_bytes: 10MB"},
        "workload.gradient_bytes: 10MB of gradients for 25.6 M parameters: 0.39 bytes each, usual are 2 or 4",
    ),
    "a data set of one sample": (
        {SAMPLES: "dataset_samples: 1", TARGET: "samples: 1M"},
        "workload.target: a batch of 256 is more than the data set's 1 sample",
    ),
    "epochs that are samples": (
        {TARGET: "epochs: 115000000"},
        "workload.target: 115 M passes over 1,280,000 samples; is a unit missing there?",
    ),
    "samples that are epochs": (
        {TARGET: "samples: 900"},
        "workload.target: 900 samples are 0.0007 of the data set's 1,280,000; were epochs meant?",
    ),
}


@pytest.fixture
def planned(run_scav: Callable[..., Any], write_job: Callable[..., Path]) -> Callable[[dict[str, str]], Any]:
    def plan(changes: dict[str, str]) -> Any:
        write_job(changes)
        return run_scav("plan")

    return plan


def test_the_job_as_it_stands_is_believed(planned: Callable[[dict[str, str]], Any]) -> None:
    result = planned({})
    assert result.exit_code == 0
    assert "Warning" not in result.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str, planned: Callable[[dict[str, str]], Any]) -> None:
    changes, message = REFUSED[name]
    result = planned(changes)
    assert result.exit_code in {1, 3}
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.parametrize("name", WARNED)
def test_what_is_odd_is_named(name: str, planned: Callable[[dict[str, str]], Any]) -> None:
    changes, message = WARNED[name]
    result = planned(changes)
    assert f"Warning: {message}" in result.stderr


def test_parameters_that_were_measured_otherwise_are_named_with_both_numbers(
    run_scav: Callable[..., Any], write_job: Callable[..., Path], measurement_line: str, tmp_path: Path
) -> None:
    write_job({PARAMETERS: "parameters: 300k", FLOPS: "flops_per_sample: 1 GFLOP"})
    line = measurement_line.strip().removesuffix("}") + ', "parameters": 399370}\n'
    (tmp_path / "measurements.jsonl").write_text(line)
    assert "399,370 parameters, the job file says 300,000" in run_scav("plan").stderr
