"""Jobs with a shape: what follows from it, what is refused in one line, what fits, and what nodes are told."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sharded_memory import CATALOG, LLAMA_7B, shapes, strategies, total

from planner.errors import InputError
from planner.inputs import Measurement, ParallelStrategy, TransformerShape, parse_job, parse_strategy
from planner.inputs.contradictions import contradictions
from planner.inputs.measurements import unusable
from planner.models.configurations import Configurations
from planner.models.sharded_memory.calibration import SHIPPED, fit_probability, largest_formula_bytes
from planner.models.sharded_memory.model import ShardedMemoryModel
from planner.models.sharded_memory.peak import peak_bytes
from planner.models.sharded_memory.rows import StrategyRows
from planner.models.sharded_memory.stage import state_bytes
from planner.models.sharded_memory.strategy import Strategy, job_strategy
from planner.models.strategies import Strategies
from planner.plan.check.facts import _settings_facts
from planner.plan.strategy_words import chosen_words

SHAPE = "{layers: 32, width: 4096, heads: 32, feed_forward_width: 11008, vocabulary: 32000, sequence_length: 2048}"


def job_text(*lines: str, shape: str = SHAPE, target: str = "{epochs: 3, reference_batch: 128}") -> str:
    return "\n".join(
        [
            "name: llama",
            "workload:",
            f"  transformer: {shape}",
            "  dataset_samples: 52000",
            "  global_batch: 64..256",
            f"  target: {target}",
            *lines,
            "",
        ]
    )


def workload(*lines: str, **options: str) -> Any:
    return parse_job(job_text(*lines, **options), file="scav.yaml").job.workload


def test_sizes_follow_from_the_shape() -> None:
    of = workload()
    # 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 2 x 32000 x 4096, and the final norm.
    assert of.parameters == 6_738_411_520 + 4096
    multiplied = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    assert of.flops_per_sample == 6.0 * 2048 * multiplied + 12.0 * 32 * 4096 * 2048**2
    assert of.activation_bytes_per_sample == of.transformer.counted.activation_bytes_per_sample
    assert of.frozen_parameters == 0


def test_adapters_are_what_is_trained_and_the_rest_is_frozen() -> None:
    of = workload("  training: lora", "  lora_rank: 16")
    assert of.parameters == 32 * 16 * 4 * 4096
    assert of.frozen_parameters == 6_738_415_616
    assert of.checkpoint_bytes_or_default == 12.0 * of.parameters


def test_what_is_said_goes_before_what_follows() -> None:
    assert workload("  parameters: 6.7B").parameters == 6_700_000_000


def test_tokens_are_sequences() -> None:
    of = workload(target="{tokens: 2.048B, reference_batch: 128}")
    assert of.target_samples == 1e6


def test_a_job_without_a_shape_says_its_sizes() -> None:
    text = "name: a\nworkload:\n  dataset_samples: 10\n  global_batch: 4\n  target: {epochs: 1, reference_batch: 4}\n"
    with pytest.raises(InputError, match=r"workload\.flops_per_sample: this key is required \(and 2 more\)"):
        parse_job(text, file="scav.yaml")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("  training: dora",), "'dora' is not one of 'full', 'lora' or 'qlora'"),
        (("  training: lora", "  lora_rank: -8"), "greater than or equal to 1"),
        (("  training: lora", "  lora_rank: 8192"), "8,192 is beyond the width of 4,096"),
        (("  lora_rank: 8",), "lora_rank is of training: lora or qlora, and training is full"),
        (("  strategies: {tensor_parallel: 3}",), "32 heads and 32 key-value heads cannot be divided among 3 GPUs"),
        (("  strategies: {pipeline: 64}",), "32 layers are too few for 64 stages"),
        (("  strategies: {sharding: [fdsp]}",), "'fdsp' is not one of"),
        (("  strategies: {recompute: []}",), "at least 1 item"),
        (("  strategies: {context_parallel: 2}",), "unknown key"),
        (("  states: bf16",), "'bf16' is not one of"),
    ],
)
def test_what_cannot_be_is_one_line(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(job_text(*lines), file="scav.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sequence_length: 2048, longest_sequence: 1024", "a sequence_length of 2,048: the model reads at most 1,024"),
        ("sequence_length: 2048, num_experts: 8", "mixtures of experts are not supported"),
    ],
)
def test_a_shape_that_cannot_be_is_one_line(change: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(job_text(shape=SHAPE.replace("sequence_length: 2048", change)), file="scav.yaml")
    assert message in str(caught.value)
    assert "required" not in str(caught.value)


@pytest.mark.parametrize("line", ["training: lora", "lora_rank: 8", "states: pure", "strategies: {sharding: [fsdp]}"])
def test_strategies_need_a_shape(line: str) -> None:
    flat = "  flops_per_sample: 1e12\n  parameters: 1M\n  activation_bytes_per_sample: 1MB\n"
    text = job_text(f"  {line}").replace(f"  transformer: {SHAPE}\n", flat)
    with pytest.raises(InputError, match=r"needs workload\.transformer"):
        parse_job(text, file="scav.yaml")


def test_a_shape_of_another_size_than_said_is_refused() -> None:
    with pytest.raises(InputError, match=r"124 M parameters, and a transformer of 6.74 G"):
        contradictions(parse_job(job_text("  parameters: 124M"), file="scav.yaml"))


def test_the_order_of_strategies_changes_nothing() -> None:
    one = workload("  strategies: {sharding: [hsdp, ddp], recompute: [full, none, none]}").strategies
    assert (one.sharding, one.recompute) == (("ddp", "hsdp"), ("none", "full"))


@given(shapes(), st.lists(strategies(states="autocast", optimizer="adamw"), min_size=1, max_size=6))
def test_columns_are_what_each_row_is_alone(shape: TransformerShape, each: list[Strategy]) -> None:
    shared = {"training", "compiled", "load", "flat_parameters", "states", "optimizer", "lora_rank"}
    alike = [Strategy(**{**_fields(one), **{key: getattr(each[0], key) for key in shared}}) for one in each]
    rows = [StrategyRows.one(one) for one in alike]
    columns = StrategyRows(
        job=alike[0],
        **{
            name: np.concatenate([getattr(row, name) for row in rows])
            for name in StrategyRows.__dataclass_fields__
            if name != "job"
        },
    )
    assert peak_bytes(shape, columns).tolist() == pytest.approx([total(shape, one) for one in alike], rel=1e-12)


def _fields(strategy: Strategy) -> dict[str, Any]:
    return {name: getattr(strategy, name) for name in Strategy.__dataclass_fields__}


@given(st.floats(1.0, 300.0), st.floats(0.5, 0.999))
def test_the_largest_formula_fits_with_that_confidence(memory_gib: float, confidence: float) -> None:
    size = largest_formula_bytes(memory_gib, confidence)
    assert size == pytest.approx(largest_formula_bytes(memory_gib, confidence, SHIPPED))
    assert fit_probability(size, memory_gib) == pytest.approx(confidence)


def test_peaks_of_the_job_move_the_median_and_leave_its_own_spread() -> None:
    once, often = SHIPPED.measured([math.log(1.3)]), SHIPPED.measured([math.log(1.3)] * 1000)
    assert SHIPPED.measured([]) == SHIPPED
    assert SHIPPED.allocated < once.allocated < often.allocated == pytest.approx(1.3, rel=1e-3)
    assert SHIPPED.within < often.sd < once.sd < SHIPPED.sd
    assert often.sd == pytest.approx(SHIPPED.within, rel=1e-2)


def model(*measurements: Measurement, confidence: float = 0.95) -> ShardedMemoryModel:
    return ShardedMemoryModel(workload(), LLAMA_7B, CATALOG, confidence).fit(measurements)


def probe(**changes: Any) -> Measurement:
    usual: dict[str, Any] = {
        "instance_type": "p4d.24xlarge",
        "nodes": 1,
        "gpus_per_node": 8,
        "gpu_batch": 2,
        "precision": "bf16",
        "step_seconds": 1.0,
        "strategy": {"sharding": "fsdp"},
    }
    return Measurement.model_validate({**usual, **changes})


def rows(*sizes: int, strategy: ParallelStrategy | None = None) -> Configurations:
    kind = CATALOG.instance_type_by_name["p4d.24xlarge"]
    how = Strategies.repeated(strategy or ParallelStrategy(sharding="fsdp"), len(sizes))
    return Configurations.of(CATALOG, kind, nodes=1, gpu_batch=list(sizes), strategies=how)


def test_what_ran_fits_and_what_did_not_does_not() -> None:
    sizes = (1, 2, 4, 8, 16)
    before = model().fits(rows(*sizes))
    assert before.tolist() == sorted(before.tolist(), reverse=True)
    edge = sizes[int(before.sum())]
    assert model(probe(gpu_batch=edge)).fits(rows(edge))[0]
    assert not model(probe(gpu_batch=1, out_of_memory_at=2)).fits(rows(2))[0]
    assert not model(probe(gpu_batch=2, out_of_memory_at=2)).fits(rows(2))[0]


def test_facts_are_of_one_strategy_but_move_the_others() -> None:
    full = ParallelStrategy(sharding="fsdp", recompute="full")
    known = model(probe(gpu_batch=1, out_of_memory_at=2))
    assert known.calibration_.allocated > model().calibration_.allocated
    assert known.fits(rows(1, strategy=full))[0]


def test_a_peak_that_cannot_be_is_named() -> None:
    found = model(probe(peak_memory_bytes=1e15))
    assert found.calibration_ == SHIPPED
    assert len(found.warnings_) == 1
    assert "by formula it is about" in found.warnings_[0]


def test_a_measured_peak_moves_what_fits() -> None:
    formula = float(model().formula_bytes(rows(2))[0])
    assert model(probe(peak_memory_bytes=0.7 * formula)).fits(rows(*range(1, 20))).sum() > (
        model(probe(peak_memory_bytes=1.4 * formula)).fits(rows(*range(1, 20))).sum()
    )


@pytest.mark.parametrize(("training", "each"), [("full", 16.0), ("lora", 2.0), ("qlora", 0.516)])
def test_state_of_a_model(training: str, each: float) -> None:
    lines = [] if training == "full" else [f"  training: {training}"]
    job = job_strategy(workload(*lines))
    adapters = 0 if training == "full" else 16 * LLAMA_7B.layers * LLAMA_7B.adapter_parameters(8)
    assert state_bytes(LLAMA_7B, job) == pytest.approx(each * LLAMA_7B.counted.parameters + adapters)


def test_rows_of_a_strategy_say_nothing_of_a_job_without_a_shape() -> None:
    row = probe()
    assert unusable(row, CATALOG, "bf16", has_shape=True) is None
    assert unusable(row, CATALOG, "bf16") == "taken with fsdp, which needs workload.transformer"
    assert unusable(probe(strategy=None), CATALOG, "bf16") is None


def test_words() -> None:
    how = parse_strategy("fsdp,recompute=selective")
    said = chosen_words(how, nodes=2, gpus_per_node=8, gpu_batch=4, accumulation_steps=2)
    assert said == "FSDP over 16, selective recompute, micro-batch 4 x 2"
    hybrid = parse_strategy("hsdp,tensor_parallel=2,pipeline=2")
    said = chosen_words(hybrid, nodes=4, gpus_per_node=8, gpu_batch=1, accumulation_steps=1)
    assert said == "HSDP over 4, tensor parallel 2, 2 stages, micro-batch 1"
    assert chosen_words(ParallelStrategy(), nodes=1, gpus_per_node=8, gpu_batch=1, accumulation_steps=1) == (
        "DDP on 8, micro-batch 1"
    )


def test_nodes_that_are_told_another_strategy_are_named() -> None:
    expected = {"strategy": {"sharding": "fsdp", "tensor_parallel": 1, "pipeline": 1, "recompute": "none"}}
    told = {"environment": {"SCAV_STRATEGY": json.dumps({**expected["strategy"], "sharding": "ddp"})}}
    facts = {name: (asked, found) for name, asked, found in _settings_facts(expected, [told])}
    asked, found = facts["strategy on the nodes"]
    assert asked == expected["strategy"]
    assert found["sharding"] == "ddp"
    for unreadable in ({}, {"environment": {"SCAV_STRATEGY": "{"}}):
        facts = {name: (asked, found) for name, asked, found in _settings_facts(expected, [unreadable])}
        assert facts["strategy on the nodes"][0] != facts["strategy on the nodes"][1]
