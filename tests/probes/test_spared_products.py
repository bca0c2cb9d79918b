"""A large model's products are not computed for ever, and nothing that is counted changes by it."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from probes.spared_products import SparedProducts
from probes.work import WorkWatch


class Attentive(nn.Module):
    """A convolution, attention and layers; with `picking`, it looks at values to decide what it works on."""

    def __init__(self, *, picking: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(8, 16, 3, padding=1)
        self.inward, self.outward, self.picking = nn.Linear(16, 48), nn.Linear(16, 5), picking

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.convolution(images).transpose(1, 2)
        query, key, value = self.inward(hidden).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        if self.picking:
            mixed = mixed[mixed.mean(-1) > -math.inf]
        return self.outward(nn.functional.gelu(mixed))


def counted(network: nn.Module, products: SparedProducts | None, *, half: bool = False) -> tuple[Any, ...]:
    """Flops, bytes kept, and the gradients' sizes of one step."""
    torch.manual_seed(0)
    watch = WorkWatch(products)
    network.zero_grad()
    with watch:
        watch.counts_flops = watch.follows_memory = True
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = network(torch.randn(3, 8, 12)).logsumexp(-1).mean()
        kept = watch.kept_bytes(without=network.parameters())
        watch.follows_memory = False
        loss.backward()
    sizes = [(parameter.grad.shape, parameter.grad.dtype) for parameter in network.parameters()]  # type: ignore[union-attr]
    assert math.isfinite(loss.item())
    return watch.flops, kept, sizes, watch.without_formula


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
def test_what_is_counted_is_the_same_whether_it_is_computed_or_not(half: bool) -> None:
    network, products = Attentive(), SparedProducts(0.0)
    assert counted(network, products, half=half) == counted(network, None, half=half)
    assert products.spared >= 9  # convolution, attention and two layers, forward and backward


def test_while_there_is_time_everything_is_computed() -> None:
    products, network = SparedProducts(1e9), Attentive()
    counted(network, products)
    gradients = [parameter.grad for parameter in network.parameters()]
    assert products.spared == 0
    counted(network, None)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_model_whose_sizes_depend_on_values_is_computed() -> None:
    products, network = SparedProducts(0.0), Attentive(picking=True)
    counted(network, products)
    before = products.spared
    assert before <= 3  # up to where it looked at values for the first time
    counted(network, products)
    assert products.spared == before


def test_numbers_as_indices_are_no_reason_to_compute() -> None:
    products, rows = SparedProducts(0.0), torch.tensor([0, 2])
    with WorkWatch(products):
        (torch.ones(4, 4)[rows] @ torch.ones(4, 4)).sum()
    assert products.spared == 1


def test_a_product_into_a_given_tensor_is_computed() -> None:
    products, out = SparedProducts(0.0), torch.zeros(2, 2)
    with WorkWatch(products):
        torch.mm(torch.ones(2, 3), torch.ones(3, 2), out=out)
    assert (products.spared, out.tolist()) == (0, [[3.0, 3.0], [3.0, 3.0]])
