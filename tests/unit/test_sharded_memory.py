"""What a GPU holds when a transformer is trained: laws of every strategy, and values that were worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs import Catalog, Recompute, States, TransformerShape
from planner.models.sharded_memory.architecture import model_parameters, parameters
from planner.models.sharded_memory.calibration import (
    CONTEXT_GIB,
    GIB,
    SHIPPED,
    allocated_interval,
    fit_probability,
    reserved_interval,
)
from planner.models.sharded_memory.peak import Parts, moments, peak_memory
from planner.models.sharded_memory.stage import DOUBLE_QUANTIZED_BYTES, NF4_BYTES, layers_of_stages
from planner.models.sharded_memory.strategy import Strategy, check_strategy
from planner.models.sharded_memory.ways import _changes, ways_to_fit
from planner.outside.store import load_catalog

CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
LLAMA_7B = TransformerShape(
    layers=32, width=4096, heads=32, feed_forward_width=11008, vocabulary=32000, sequence_length=1024
)
STATES = st.sampled_from(["fp32", "autocast", "pure", "master"])


@st.composite
def shapes(draw: st.DrawFn) -> TransformerShape:
    heads = 8 * draw(st.integers(1, 8))
    return TransformerShape(
        layers=draw(st.integers(1, 80)),
        width=heads * draw(st.sampled_from([16, 64, 128])),
        heads=heads,
        key_value_heads=draw(st.sampled_from([8, heads])),
        feed_forward_width=draw(st.integers(64, 40_000)),
        vocabulary=draw(st.integers(100, 300_000)),
        sequence_length=draw(st.integers(1, 16_384)),
        tied_embeddings=draw(st.booleans()),
        gated=draw(st.booleans()),
        attention=draw(st.sampled_from(["eager", "flash"])),
        loss=draw(st.sampled_from(["eager", "half", "hf", "fused", "chunked"])),
    )


@st.composite
def strategies(draw: st.DrawFn, **fixed: Any) -> Strategy:
    options = {
        "sharding": draw(st.sampled_from(["ddp", "zero1", "zero2", "fsdp", "hsdp"])),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "training": draw(st.sampled_from(["full", "lora", "qlora"])),
        "optimizer": draw(st.sampled_from(["sgd", "momentum", "adamw"])),
        "states": draw(STATES),
        "compiled": draw(st.booleans()),
        "micro_batch": draw(st.integers(1, 64)),
        "accumulation": draw(st.integers(1, 8)),
        "flat_parameters": draw(st.booleans()),
        "load": draw(st.sampled_from(["sharded", "full"])),
        "tensor_parallel": draw(st.sampled_from([1, 2, 4, 8])),
        "pipeline": 1,
        **fixed,
    }
    group = options["tensor_parallel"] * options["pipeline"]
    return Strategy(gpus=group * draw(st.integers(1, 64)), gpus_per_node=8, **options)


def total(shape: TransformerShape, strategy: Strategy) -> float:
    return peak_memory(shape, strategy).parts.total


@given(shapes(), strategies(), st.integers(2, 8))
def test_more_shards_never_need_more(shape: TransformerShape, strategy: Strategy, times: int) -> None:
    if strategy.sharding == "ddp":
        strategy = replace(strategy, sharding="fsdp")
    assert total(shape, replace(strategy, gpus=strategy.gpus * times)) <= total(shape, strategy) * (1 + 1e-12)


@given(shapes(), strategies(tensor_parallel=1), st.sampled_from([2, 4, 8]))
def test_more_tensor_parallelism_never_needs_more(shape: TransformerShape, strategy: Strategy, times: int) -> None:
    split = replace(strategy, tensor_parallel=times, gpus=strategy.gpus * times, gpus_per_node=8 * times)
    assert total(shape, split) <= total(shape, strategy) * (1 + 1e-12)


@given(shapes(), strategies())
def test_the_more_is_recomputed_the_less_is_held(shape: TransformerShape, strategy: Strategy) -> None:
    none, selective, full = (
        total(shape, replace(strategy, recompute=recompute)) for recompute in ("none", "selective", "full")
    )
    assert full <= none * (1 + 1e-12)
    assert selective <= none * (1 + 1e-12)


@given(shapes(), strategies())
def test_lora_without_dropout_never_needs_more_than_full_training(shape: TransformerShape, strategy: Strategy) -> None:
    lean = replace(strategy, lora_rank=max(shape.width // 64, 1), lora_dropout=False)
    full = total(shape, replace(lean, training="full"))
    assert total(shape, replace(lean, training="lora")) <= full * (1 + 1e-12)
    assert total(shape, replace(lean, training="qlora")) <= full * (1 + 1e-12)


@given(shapes(), strategies(), st.integers(1, 64))
def test_a_larger_micro_batch_never_needs_less(shape: TransformerShape, strategy: Strategy, more: int) -> None:
    larger = replace(strategy, micro_batch=strategy.micro_batch + more)
    assert total(shape, larger) >= total(shape, strategy)


@given(st.floats(1e6, 1e13), st.floats(1.0, 1e3), st.booleans())
def test_a_larger_gpu_is_never_less_likely_to_fit(size: float, memory_gib: float, varying: bool) -> None:
    chance = fit_probability(size, memory_gib, varying=varying)
    assert 0 <= chance <= fit_probability(size, 2 * memory_gib, varying=varying) <= 1
    assert fit_probability(2 * size, memory_gib, varying=varying) <= chance


@given(st.integers(1, 200), st.integers(1, 64), st.floats(0, 20))
def test_stages_have_all_layers_and_none_is_empty(layers: int, stages: int, head: float) -> None:
    split = layers_of_stages(max(layers, stages), stages, head)
    assert (len(split), sum(split)) == (stages, max(layers, stages))
    assert min(split) >= 1


def test_llama_has_its_parameters() -> None:
    # 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 2 x 32000 x 4096; the final norm's 4096 are not counted.
    assert model_parameters(LLAMA_7B) == 6_738_411_520


def test_lora_on_one_gpu_by_hand() -> None:
    strategy = Strategy(training="lora", states="pure", micro_batch=2)
    parts = peak_memory(LLAMA_7B, strategy).parts
    tokens, adapters = 2048, 32 * 8 * 4 * 4096
    # Norms 8 d, one input 2 d, attention 8 d, dropout 6 d, feed-forward 6 f; the final norm 4 d.
    per_token = 32 * (24 * 4096 + 6 * 11008) + 4 * 4096
    assert parts.weights == 2 * 6_738_411_520 + 2 * adapters
    assert parts.activations == tokens * per_token
    assert parts.logits == 12 * tokens * 32000
    assert parts.optimizer == 4 * adapters
    assert parts.gradients == 0


def test_fsdp_with_autocast_by_hand() -> None:
    strategy = Strategy(sharding="fsdp", gpus=16, recompute="full", accumulation=2)
    peak = peak_memory(LLAMA_7B, strategy)
    counts = parameters(LLAMA_7B)
    whole, ends = 6_738_411_520, 2 * 32000 * 4096
    # Of 16 bytes per parameter a sixteenth; the ends and two blocks in half precision; a block's gradients at 6 bytes.
    assert peak.moment == "first backward block"
    assert peak.parts.weights == pytest.approx(4 * whole / 16)
    assert peak.parts.optimizer == pytest.approx(8 * whole / 16)
    assert peak.parts.gathered == 2 * (ends + 2 * counts.block)
    assert peak.parts.gradients == pytest.approx(max(4 * whole / 16, 0) + 6 * counts.block)
    kept, block, backward = 32 * 2 * 4096 + 4 * 4096, 20 * 4096 + 8 * 11008 - 2 * 4096, 2 * 4096 + 4 * 11008
    assert peak.parts.activations == 1024 * (kept + block + backward)


@pytest.mark.parametrize(
    ("states", "weight", "gradient", "optimizer", "reduced"),
    [("fp32", 4, 4, 8, 8), ("autocast", 4, 4, 8, 6), ("pure", 2, 2, 4, 4), ("master", 2, 6, 12, 6)],
)
def test_bytes_of_a_trained_parameter(states: States, weight: int, gradient: int, optimizer: int, reduced: int) -> None:
    """A sixteenth of each on a GPU, and beside it the gradients of one block before they are sharded."""
    strategy = Strategy(sharding="fsdp", gpus=16, recompute="full", accumulation=2, states=states)
    parts, shard = peak_memory(LLAMA_7B, strategy).parts, 6_738_411_520 / 16
    assert (parts.weights, parts.optimizer) == pytest.approx((weight * shard, optimizer * shard))
    assert parts.gradients == pytest.approx(gradient * shard + reduced * parameters(LLAMA_7B).block)


def parts_at(strategy: Strategy) -> dict[str, Parts]:
    return {peak.moment: peak.parts for peak in moments(LLAMA_7B, strategy)}


def test_the_end_of_backward_and_the_step_by_hand() -> None:
    """Of DDP: weights in four bytes and cast to two, gradients twice (buckets), two moments; the step copies."""
    found, all_of_it = parts_at(Strategy(gpus=8)), 6_738_411_520
    end, step = found["end of backward"], found["optimizer step"]
    assert end == Parts(weights=6 * all_of_it, gradients=8 * all_of_it, optimizer=8 * all_of_it)
    assert step == Parts(weights=4 * all_of_it, gradients=8 * all_of_it, optimizer=12 * all_of_it)
    fused = parts_at(Strategy(gpus=8, fused_optimizer=True))["optimizer step"]
    assert fused.optimizer == 8 * all_of_it


def test_loading_all_of_it_on_every_gpu_by_hand() -> None:
    strategy = Strategy(sharding="fsdp", gpus=16, load="full")
    assert parts_at(strategy)["loading"] == Parts(weights=2 * 6_738_411_520 / 16, load=2 * 6_738_411_520)


def test_flat_parameters_by_hand() -> None:
    """Adapters share a flat parameter with the frozen weights of their block: its gradient is as large as both."""
    blocks, adapters = 32 * parameters(LLAMA_7B).block, 32 * 8 * 4 * 4096
    flat = Strategy(training="lora", states="pure", sharding="fsdp", gpus=16, recompute="full", flat_parameters=True)
    assert parts_at(flat)["optimizer step"].gradients == pytest.approx(2 * blocks / 16)
    accumulated = parts_at(replace(flat, accumulation=4))
    assert accumulated["loss"].gradients == pytest.approx(2 * blocks)
    assert accumulated["optimizer step"].gradients == pytest.approx(2 * blocks / 16)
    assert parts_at(replace(flat, flat_parameters=False))["optimizer step"].gradients == pytest.approx(
        2 * adapters / 16
    )
    assert parts_at(replace(flat, training="qlora")) == parts_at(replace(flat, training="qlora", flat_parameters=False))


def test_qlora_by_hand() -> None:
    """Blocks in four bits and their scales, the ends in two bytes; one matrix is unpacked at a time."""
    block, ends, adapters, unpacked = parameters(LLAMA_7B).block, 2 * 32000 * 4096, 32 * 8 * 4 * 4096, 2 * 4096 * 11008
    alone = parts_at(Strategy(training="qlora"))["end of backward"]
    assert alone.weights == pytest.approx(6 * adapters + 2 * ends + DOUBLE_QUANTIZED_BYTES * 32 * block)
    assert alone.gathered == unpacked
    plain = parts_at(Strategy(training="qlora", double_quantized=False))["end of backward"]
    assert plain.weights == pytest.approx(6 * adapters + 2 * ends + NF4_BYTES * 32 * block)
    sharded = parts_at(Strategy(training="qlora", sharding="fsdp", gpus=16))["end of backward"]
    assert sharded.gathered == pytest.approx(2 * ends + DOUBLE_QUANTIZED_BYTES * 2 * block + unpacked)
    assert pytest.approx((0.5 + 4 / 64, 0.5 + 1 / 64 + 4 / 64 / 256), rel=1e-3) == (NF4_BYTES, DOUBLE_QUANTIZED_BYTES)


@pytest.mark.parametrize(
    ("recompute", "more"),
    [("none", ["--recompute selective", "--recompute full"]), ("selective", ["--recompute full"]), ("full", [])],
)
def test_more_can_be_recomputed_until_all_is(recompute: Recompute, more: list[str]) -> None:
    changes = _changes(Strategy(gpus=8, recompute=recompute))
    assert [words for kind, words, _ in changes if kind == "recompute"] == more


def test_what_is_not_there_at_a_moment_holds_nothing() -> None:
    assert (Parts().total, Parts(weights=2.0, load=3.0).total) == (0.0, 5.0)


def test_the_first_of_several_stages_is_the_fullest() -> None:
    strategy = Strategy(gpus=4, pipeline=4, states="master", accumulation=8, micro_batch=4)
    assert peak_memory(LLAMA_7B, strategy).stage == 0


def test_a_probability_by_hand() -> None:
    free = (80 - CONTEXT_GIB) * GIB
    assert fit_probability(free / 1.02 / SHIPPED.allocated, 80.0) == pytest.approx(0.5)
    assert fit_probability(1e9, 0.5) == 0.0
    for varying, sd in ((False, SHIPPED.sd), (True, SHIPPED.sd_varying)):  # one standard deviation of room
        size = free / 1.02 / SHIPPED.allocated / math.exp(sd)
        assert fit_probability(size, 80.0, varying=varying) == pytest.approx(0.84134475)
    interval = allocated_interval(1e10)
    assert interval.p05 * interval.p95 == pytest.approx(interval.p50**2)
    for varying, sd, factor in (
        (False, SHIPPED.sd, SHIPPED.reserved),
        (True, SHIPPED.sd_varying, SHIPPED.reserved_varying),
    ):
        found = reserved_interval(1e10, 80.0, varying=varying)
        assert found.p50 == pytest.approx(factor * 1e10)
        assert found.p95 / found.p50 == pytest.approx(math.exp(1.6449 * sd), rel=1e-4)
    assert reserved_interval(1e12, 80.0).p50 == free  # the allocator cannot reserve more than there is


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel": 3}, "--tensor-parallel: 32 heads and 32 key-value heads cannot be divided among 3 GPUs"),
        ({"tensor_parallel": 16}, "--tensor-parallel: 16 is beyond a node of 8 GPUs"),
        ({"pipeline": 33}, "--pipeline: 32 layers are too few for 33 stages"),
        ({"pipeline": 3}, "--pipeline: 8 GPUs cannot be divided into 1 x 3 (tensor x stages)"),
        ({"lora_rank": -1}, "--lora-rank: -1 is not a whole number from 1"),
        ({"lora_rank": 5000}, "--lora-rank: 5,000 is beyond the width of 4,096"),
        ({"micro_batch": 0}, "--micro-batch: 0 is not a whole number from 1"),
    ],
)
def test_what_cannot_be_is_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        check_strategy(LLAMA_7B, Strategy(gpus=8, **options))
    assert str(refused.value) == words


def test_every_way_makes_it_fit() -> None:
    gpu = CATALOG.gpu_by_name["A100-40GB"]
    strategy = Strategy(gpus=8, micro_batch=8)
    ways = ways_to_fit(
        LLAMA_7B, strategy, gpu, larger=tuple(CATALOG.gpu_by_name.values()), confidence=0.9, varying=False
    )
    assert ways
    assert all(way.probability >= 0.9 for way in ways)
    assert ways[0].change == "--strategy fsdp --recompute full"  # no single one is enough
