"""Flops and kept bytes of networks that can be counted by hand."""

from __future__ import annotations

import weakref

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from probes.as_on_gpu import AsOnGpu
from probes.other_batches import Autocast, Call, constant_bytes, input_bytes
from probes.work import WorkWatch, does_uncounted_work

SAMPLES = 8


@pytest.fixture
def watch() -> WorkWatch:
    watch = WorkWatch()
    watch.counts_flops = watch.follows_memory = True
    return watch


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def test_a_linear_layer_takes_two_flops_per_weight_and_sample_for_each_of_its_products(
    watch: WorkWatch, network: nn.Module
) -> None:
    with watch:
        network(torch.ones(SAMPLES, 10)).sum().backward()
    # The first layer needs no gradient of its input: forward and gradient of the weights; the second needs both.
    assert watch.flops == {torch.float32: SAMPLES * 2 * (2 * 200 + 3 * 100)}
    assert watch.without_formula == set()


def test_the_precision_is_that_of_the_products(watch: WorkWatch, network: nn.Module) -> None:
    with watch, torch.autocast("cpu", dtype=torch.bfloat16):
        network(torch.ones(SAMPLES, 10))
    assert watch.flops == {torch.bfloat16: SAMPLES * 2 * 300}


def test_attention_on_a_processor_is_counted_in_full(watch: WorkWatch) -> None:
    query = torch.ones(2, 4, 16, 8, requires_grad=True)
    product = 2 * 2 * 4 * 16 * 16 * 8
    with watch:
        out = functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        assert watch.flops[torch.float32] == 2 * product
        out.sum().backward()
    assert watch.flops[torch.float32] == 7 * product  # the scores are computed again


def test_in_inference_mode_a_layer_is_counted_too(watch: WorkWatch, network: nn.Module) -> None:
    with watch, torch.inference_mode():
        network(torch.ones(SAMPLES, 10))
    assert sum(watch.flops.values()) == SAMPLES * 2 * 300


def test_work_without_a_formula_is_named(watch: WorkWatch) -> None:
    with watch:
        nn.LSTM(4, 8)(torch.ones(3, 2, 4))
    assert watch.without_formula == {"aten.mkldnn_rnn_layer"}


@pytest.mark.parametrize(
    "name", ["aten._cudnn_rnn", "aten._lstm_mps", "aten.gru", "aten._grouped_mm", "flash_attn.fwd"]
)
def test_layers_in_one_piece_and_other_libraries_are_work(name: str) -> None:
    assert does_uncounted_work(name)


@pytest.mark.parametrize("name", ["aten.add", "aten.mm", "c10d.allreduce_", "profiler._record_function_enter_new"])
def test_what_moves_or_adds_up_is_none(name: str) -> None:
    assert not does_uncounted_work(name)


def test_nothing_is_counted_unless_told(network: nn.Module) -> None:
    watch = WorkWatch()
    with watch:
        out = network(torch.ones(SAMPLES, 10))
    assert (watch.flops, watch.kept_bytes(), out.shape) == ({}, 0, (SAMPLES, 5))


def test_what_is_kept_is_what_is_alive_each_storage_once(watch: WorkWatch, network: nn.Module) -> None:
    hidden, outputs = SAMPLES * 20 * 4, SAMPLES * 5 * 4
    with watch:
        out = network(torch.ones(SAMPLES, 10))  # ones(): 320 bytes, kept for the gradient of the first layer
        assert watch.kept_bytes(without=network.parameters()) == SAMPLES * 10 * 4 + hidden + outputs
        alike = out.view(-1)[3:]
        alike += 1
        assert watch.kept_bytes(without=network.parameters()) == SAMPLES * 10 * 4 + hidden + outputs
        del out, alike
        assert watch.kept_bytes() == 0
        watch.forget_memory()
        other = torch.ones(3)
    assert watch.kept_bytes() == 12
    assert watch.kept_bytes(without=[other]) == 0


def test_what_is_given_is_not_made(watch: WorkWatch) -> None:
    given = torch.ones(100)
    with watch:
        given.add_(1)
        kept = given.view(10, 10).t()
    assert watch.kept_bytes() == 0
    assert kept.shape == (10, 10)


def call(module: nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> Call:
    return Call(module, args, dict(kwargs), Autocast.now())


@pytest.mark.parametrize("samples", [1, 2, 3, 8])
def test_weights_in_another_precision_do_not_grow_with_the_batch(network: nn.Module, samples: int) -> None:
    images = torch.ones(samples, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = call(network, images)
    copies = 2 * (200 + 20 + 100 + 5)
    assert constant_bytes([made], samples) == pytest.approx(copies, abs=2 * (20 + 5))  # biases may be freed
    assert constant_bytes([call(network, images)], samples) == 0


def test_normalisation_refuses_one_sample_and_is_asked_with_more() -> None:
    made = call(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), torch.ones(5, 4))
    assert constant_bytes([made], 5) == 2 * 6 * 4  # mean and deviation of each channel


def test_parts_that_follow_each_other_are_asked_each_for_itself() -> None:
    made_of_data = torch.ones(5, 4, requires_grad=True) * 2
    calls = [call(nn.BatchNorm1d(4), torch.ones(5, 4)), call(nn.BatchNorm1d(4), made_of_data)]
    assert constant_bytes(calls, 5) == 2 * 2 * 4 * 4
    assert input_bytes(calls) == 5 * 4 * 4


def test_a_model_that_takes_no_other_batch_says_so() -> None:
    class Stubborn(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(7, 3)

    with pytest.raises(RuntimeError):
        constant_bytes([call(Stubborn(), torch.ones(7, 3))], 7)


def test_inputs_in_a_dictionary_are_resized_and_what_has_no_samples_is_not() -> None:
    seen = []

    class Model(nn.Module):
        def forward(self, batch: dict[str, torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
            seen.append((len(batch["x"]), len(scale)))
            return batch["x"]

    constant_bytes([Call(Model(), ({"x": torch.ones(5, 2)},), {"scale": torch.ones(3)}, ())], 5)
    assert seen == [(1, 3), (2, 3)]


def test_attention_keeps_no_dropout_here_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, watch: WorkWatch) -> None:
    monkeypatch.setattr(functional, "scaled_dot_product_attention", functional.scaled_dot_product_attention)
    monkeypatch.setattr(torch.amp.autocast_mode.autocast, "__init__", torch.amp.autocast_mode.autocast.__init__)
    here = AsOnGpu()
    here.install()
    query = torch.ones(1, 2, 64, 8, requires_grad=True)
    with watch:
        out = functional.scaled_dot_product_attention(query, query, query, None, 0.1)
    assert watch.kept_bytes() < 2 * 64 * 64 * 4  # less than one matrix of scores
    assert (out.shape, here.attention_dropout) == (query.shape, True)


def test_autocast_for_a_gpu_is_done_here(monkeypatch: pytest.MonkeyPatch, network: nn.Module) -> None:
    monkeypatch.setattr(functional, "scaled_dot_product_attention", functional.scaled_dot_product_attention)
    monkeypatch.setattr(torch.amp.autocast_mode.autocast, "__init__", torch.amp.autocast_mode.autocast.__init__)
    here = AsOnGpu()
    here.install()
    with torch.autocast("cuda", enabled=False):
        assert network(torch.ones(2, 10)).dtype is torch.float32
    assert here.notes() == []
    with torch.autocast("cuda"):
        assert network(torch.ones(2, 10)).dtype is torch.bfloat16
    assert here.autocast_dtype is torch.float16  # as wide, and what the script asked for
    assert len(here.notes()) == 1


def test_a_storage_that_is_gone_is_not_taken_for_one_at_the_same_address(watch: WorkWatch) -> None:
    with watch:
        for _ in range(20):
            last = torch.ones(1000)
    alive = weakref.ref(last)
    assert watch.kept_bytes() == 4000
    assert alive() is not None
