"""`--strategy fsdp,recompute=full`: read, shown, handed to a script, and counted in samples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cli.measurement_table import measurement_table
from planner.cli.probe_table import probe_table
from planner.errors import InputError
from planner.inputs import LOCAL, Measurement, ParallelStrategy, parse_strategy, strategy_text, unusable
from planner.outside.runners.local import Script, probe_environment
from planner.outside.store import load_catalog
from planner.probing import Probe
from probes.strategy import RECOMPUTES, SHARDINGS, VARIABLE, Strategy

asked = st.builds(
    ParallelStrategy,
    sharding=st.sampled_from(SHARDINGS),
    tensor_parallel=st.integers(1, 1024),
    pipeline=st.integers(1, 1024),
    recompute=st.sampled_from(RECOMPUTES),
)


@given(asked)
def test_what_is_shown_can_be_written_and_scripts_get_the_same(strategy: ParallelStrategy) -> None:
    text = strategy_text(strategy)
    assert parse_strategy(text) == strategy
    handed = Strategy(**strategy.model_dump())
    assert handed.shown == text
    assert Strategy.from_json(handed.to_json()) == handed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fdsp", "--strategy: sharding: 'fdsp' is not one of 'ddp', 'zero1', 'zero2', 'fsdp' or 'hsdp'"),
        ("", "--strategy: sharding: '' is not one of"),
        ("fsdp,recompute=half", "--strategy: recompute: 'half' is not one of 'none', 'selective' or 'full'"),
        ("fsdp,recompute", "--strategy: recompute: '' is not one of"),
        ("fsdp,tensor=2", "--strategy: tensor: unknown key"),
        ("fsdp,tensor_parallel=0", "--strategy: tensor_parallel: input should be greater than or equal to 1, not 0"),
        ("fsdp,tensor_parallel=-2", "--strategy: tensor_parallel: input should be greater than or equal to 1"),
        (
            "fsdp,tensor_parallel=9999999999999",
            "--strategy: tensor_parallel: input should be less than or equal to 1024",
        ),
        ("fsdp,pipeline=2,pipeline=4", "--strategy: says pipeline twice"),
        ("fsdp,sharding=ddp", "--strategy: says sharding twice"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        parse_strategy(text)
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fsdp", "SCAV_STRATEGY is no JSON object"),
        ('["fsdp"]', "SCAV_STRATEGY is no JSON object"),
        ('{"shard": "fsdp"}', "SCAV_STRATEGY has no shard: known are sharding, tensor_parallel, pipeline, recompute"),
        ('{"sharding": "zero9"}', "SCAV_STRATEGY: sharding is one of ddp, zero1, zero2, fsdp, hsdp"),
        ('{"sharding": []}', "SCAV_STRATEGY: sharding is one of"),
        ('{"pipeline": 0}', "SCAV_STRATEGY: pipeline is a whole number from 1"),
        ('{"pipeline": true}', "SCAV_STRATEGY: pipeline is a whole number from 1"),
    ],
)
def test_a_script_is_told_what_is_wrong_with_its_variable(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        Strategy.from_json(text)


def environment_of(probe: Probe) -> dict[str, str]:
    script = Script(folder=Path("job"), command=("train.py",))
    return probe_environment(probe, 32, Path("checkpoints"), Path("probe.json"), 8, 20, True, script)


def test_a_probe_hands_it_over_and_counts_each_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes in groups of two that cut layers: two parts of a batch of 8 each."""
    strategy = ParallelStrategy(sharding="fsdp", tensor_parallel=2)
    probe = Probe(LOCAL, 1, 4, 8, 1, "fp32", strategy)
    assert probe.global_batch == 16
    environment = environment_of(probe)
    assert (environment["SCAV_GLOBAL_BATCH"], environment["SCAV_LR_SCALE"]) == ("16", "0.5")
    monkeypatch.setattr(os, "environ", environment)
    assert Strategy.from_environment() == Strategy(sharding="fsdp", tensor_parallel=2)


def test_a_probe_without_one_hides_what_the_caller_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environment_of(Probe(LOCAL, 1, 4, 8, 1, "fp32"))
    assert (environment[VARIABLE], environment["SCAV_GLOBAL_BATCH"]) == ("", "32")
    monkeypatch.setattr(os, "environ", environment)
    assert Strategy.from_environment() is None


def test_tables_of_measurements_say_which_rows_are_of_which() -> None:
    usual = {"instance_type": LOCAL, "nodes": 1, "gpus_per_node": 2, "gpu_batch": 8, "precision": "fp32"}
    rows = [
        Measurement(**usual, step_seconds=0.1),
        Measurement(**usual, step_seconds=0.2, strategy=ParallelStrategy(sharding="fsdp", recompute="full")),
        Measurement(**usual, step_seconds=0.3, strategy=ParallelStrategy(sharding="fsdp", recompute="full")),
    ]
    listed = measurement_table([(number, row, None) for number, row in enumerate(rows, start=1)])
    assert "With fsdp,recompute=full: 2, 3" in listed
    probed = probe_table(rows)
    assert [line for line in probed if line.endswith(":")] == ["no strategy asked for:", "fsdp,recompute=full:"]
    assert len(probed) == 3 + 4
    assert not [line for line in probe_table(rows[:1]) if line.endswith(":")]


def test_plans_leave_other_strategies_out_and_say_so() -> None:
    catalog = load_catalog(None, beside=Path("nowhere"))[0]
    usual = {"nodes": 1, "gpus_per_node": 4, "gpu_batch": 8, "precision": "fp32", "step_seconds": 0.1}
    plain = Measurement(instance_type="g5.12xlarge", **usual, strategy=ParallelStrategy())
    other = plain.model_copy(update={"strategy": ParallelStrategy(sharding="fsdp")})
    assert unusable(plain, catalog, "fp32") is None
    assert unusable(other, catalog, "fp32") == "taken with fsdp, which needs workload.transformer"
