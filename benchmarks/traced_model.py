"""A training script as litgpt (October 2023) and torchtune write it, in plain PyTorch: `traced_memory.py` traces it.

Half precision throughout, as both train. litgpt: LoRA with dropout on queries and values, which come out of one layer
with the keys; output layer and loss in chunks of tokens, whose logits Lightning's Fabric hands over in fp32; four bits
as bitsandbytes multiplies them, which keeps the input of every product. torchtune: all weights or LoRA without dropout
on all linear layers but the keys', norms and rotations in fp32, the loss in fp32 of all logits or of eight chunks; four
bits as torchao multiplies them, which keeps no input. litgpt's norm of RMS is the one without a cast; a later version
of its source has one.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from probes import scav_probe

RANK = 8
HEAD_CHUNK_TOKENS, LOSS_CHUNKS = 128, 8  # litgpt, torchtune
WEIGHTS_PER_SCALE, SCALES_PER_SCALE = 64, 256


class Shape(NamedTuple):
    layers: int
    width: int
    heads: int
    key_value_heads: int
    feed_forward: int
    vocabulary: int
    gated: bool = True
    tied: bool = False
    parallel: bool = False  # attention and feed-forward of one input
    norms: int = 2  # of a block
    rotated: float = 1.0  # share of a head

    @property
    def key_width(self) -> int:
        return self.width // self.heads * self.key_value_heads


SHAPES = {
    "phi-1.5 1.3 B": Shape(24, 2048, 32, 32, 8192, 51200, gated=False, parallel=True, norms=1, rotated=0.5),
    "StableLM Alpha 3 B": Shape(16, 4096, 32, 32, 16384, 50688, gated=False, parallel=True, rotated=0.25),
    "Llama 2 7 B": Shape(32, 4096, 32, 32, 11008, 32000),
    "Llama 2 13 B": Shape(40, 5120, 40, 40, 13824, 32000),
    "Llama 3.1 8B": Shape(32, 4096, 32, 8, 14336, 128256),
    "Llama 3.1 70B": Shape(80, 8192, 64, 8, 28672, 128256),
    "Llama 3.2 3B": Shape(28, 3072, 24, 8, 8192, 128256, tied=True),
}


class Recipe(NamedTuple):
    litgpt: bool
    training: str
    double_quantized: bool
    chunked: bool
    compiled: bool  # the loss; of blocks that are computed again nothing is kept that compiling could spare

    @property
    def adapts(self) -> bool:
        return self.training != "full"

    def linear(self, inputs: int, outputs: int, *, bias: bool, adapted: bool) -> nn.Module:
        packed = self.training == "qlora"
        base = FourBitLinear(inputs, outputs, self) if packed else nn.Linear(inputs, outputs, bias=bias)
        if not (self.adapts and adapted and not self.litgpt):
            return base
        return Adapted(base, inputs, outputs)


class FourBitLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, recipe: Recipe) -> None:
        super().__init__()
        self.shape, self.keeps_input = (outputs, inputs), recipe.litgpt
        scales = inputs * outputs // WEIGHTS_PER_SCALE
        double = recipe.double_quantized
        kinds = {"packed": (inputs * outputs // 2, torch.uint8)}
        kinds["scales"] = (scales, torch.uint8 if double else torch.float32)
        kinds["of_scales"] = (scales // SCALES_PER_SCALE * double, torch.float32)
        for name, (count, kind) in kinds.items():
            self.register_parameter(name, nn.Parameter(torch.empty(count, dtype=kind), requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        return _FourBitProduct.apply(x, self.packed, self.shape, self.keeps_input)


class _FourBitProduct(torch.autograd.Function):
    """The weight in half precision lives as long as the product, forward and backward."""

    @staticmethod
    def forward(context: Any, x: Tensor, packed: Tensor, shape: tuple[int, int], keeps_input: bool) -> Tensor:
        context.save_for_backward(packed, *([x] if keeps_input else []))
        context.shape = shape
        return functional.linear(x, packed.new_empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        packed, (gradient,) = context.saved_tensors[0], gradients
        return gradient @ packed.new_empty(context.shape, dtype=gradient.dtype), None, None, None


class Adapted(nn.Module):
    """torchtune's: a product of two thin layers beside the frozen one."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = base
        self.adapter_down, self.adapter_up = (
            nn.Linear(*size, bias=False) for size in ((inputs, RANK), (RANK, outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        base = self.base(x)
        adapter = 2.0 * self.adapter_up(self.adapter_down(x))
        return base + adapter


class QueryKeyValue(nn.Module):
    """litgpt's: one layer, adapters of its queries and values, whose output is padded with zeros for the keys."""

    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.widths, self.adapts = (shape.width, shape.key_width, shape.key_width), recipe.adapts
        self.base = recipe.linear(shape.width, sum(self.widths), bias=not shape.gated, adapted=False)
        self.dropout = nn.Dropout(0.05)
        self.adapter_down = nn.Parameter(torch.empty(2 * RANK, shape.width))
        self.adapter_up = nn.Parameter(torch.empty(shape.width + shape.key_width, RANK, 1))

    def forward(self, x: Tensor) -> Tensor:
        base = self.base(x)
        if not self.adapts:
            return base
        thin = functional.linear(self.dropout(x), self.adapter_down)
        wide = functional.conv1d(thin.transpose(-2, -1), self.adapter_up, groups=2).transpose(-2, -1)
        rows = wide.transpose(0, 1)
        queries, keys, values = self.widths
        padded = rows.new_zeros((rows.shape[0] * rows.shape[1], sum(self.widths)))
        columns = torch.cat((torch.arange(queries), torch.arange(queries + keys, queries + keys + values)))
        padded = padded.index_copy(1, columns, rows.reshape(-1, queries + values))
        adapter = padded.view(*rows.shape[:-1], sum(self.widths)).transpose(0, 1) * 2.0
        return base + adapter


class RmsNorm(nn.Module):
    def __init__(self, width: int, recipe: Recipe) -> None:
        super().__init__()
        self.weight, self.in_full = nn.Parameter(torch.ones(width)), not recipe.litgpt

    def forward(self, x: Tensor) -> Tensor:
        own = x.float() if self.in_full else x
        squares = own.pow(2) if self.in_full else own * own
        return (own * torch.rsqrt(squares.mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Attention(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.shape, self.recipe, wide, keys = shape, recipe, shape.width, shape.key_width
        if recipe.litgpt:
            self.attend = QueryKeyValue(shape, recipe)
        else:
            self.query = recipe.linear(wide, wide, bias=False, adapted=True)
            self.key = recipe.linear(wide, keys, bias=False, adapted=False)
            self.value = recipe.linear(wide, keys, bias=False, adapted=True)
        self.mix = recipe.linear(wide, wide, bias=not shape.gated, adapted=True)

    def forward(self, x: Tensor) -> Tensor:
        shape, size = self.shape, self.shape.width // self.shape.heads
        if self.recipe.litgpt:
            # Values stay a view of the layer's whole output.
            parts = self.attend(x).split((shape.width, shape.key_width, shape.key_width), dim=-1)
            query, key, value = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in parts)
            query, key = (self._rotated_in_halves(part) for part in (query, key))
        else:
            query, key = (
                _rotated_in_pairs(part(x).unflatten(-1, (-1, size))).transpose(1, 2) for part in (self.query, self.key)
            )
            value = self.value(x).unflatten(-1, (-1, size)).transpose(1, 2)
            key, value = (_for_all_heads(part, shape.heads) for part in (key, value))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.mix(attended.transpose(1, 2).reshape(x.shape))

    def _rotated_in_halves(self, x: Tensor) -> Tensor:
        turned = int(self.shape.rotated * x.shape[-1])
        part, rest = x[..., :turned], x[..., turned:]
        cosines = torch.ones(x.shape[-2], turned, dtype=x.dtype)
        left, right = part[..., : turned // 2], part[..., turned // 2 :]
        return torch.cat((part * cosines + torch.cat((-right, left), dim=-1) * cosines, rest), dim=-1)


def _rotated_in_pairs(x: Tensor) -> Tensor:
    pairs = x.float().unflatten(-1, (-1, 2))
    cosines = torch.ones(1, x.shape[1], 1, pairs.shape[-2])
    left, right = pairs[..., 0], pairs[..., 1]
    return (
        torch.stack((left * cosines - right * cosines, right * cosines + left * cosines), dim=-1).flatten(3).type_as(x)
    )


def _for_all_heads(x: Tensor, heads: int) -> Tensor:
    samples, own, tokens, size = x.shape
    return x.unsqueeze(2).expand(samples, own, heads // own, tokens, size).flatten(1, 2)


class FeedForward(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        wide, hidden, bias = shape.width, shape.feed_forward, not shape.gated
        self.gate = recipe.linear(wide, hidden, bias=bias, adapted=True)
        self.up = recipe.linear(wide, hidden, bias=bias, adapted=True) if shape.gated else None
        self.down = recipe.linear(hidden, wide, bias=bias, adapted=True)

    def forward(self, x: Tensor) -> Tensor:
        if self.up is None:
            return self.down(functional.gelu(self.gate(x), approximate="tanh"))
        gate, up = self.gate(x), self.up(x)
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.parallel = shape.parallel
        self.before_attention = _norm(shape, recipe)
        self.attention = Attention(shape, recipe)
        self.before_feed_forward = _norm(shape, recipe) if shape.norms == 2 else None
        self.feed_forward = FeedForward(shape, recipe)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before_attention(x)
        attended = self.attention(normed)
        if self.parallel:
            again = normed if self.before_feed_forward is None else self.before_feed_forward(x)
            return self.feed_forward(again) + attended + x
        x = attended + x
        assert self.before_feed_forward is not None
        return self.feed_forward(self.before_feed_forward(x)) + x


def _norm(shape: Shape, recipe: Recipe) -> nn.Module:
    return RmsNorm(shape.width, recipe) if shape.gated else nn.LayerNorm(shape.width)


class Decoder(nn.Module):
    """Its forward is the loss, so that logits live as long as in the scripts that it stands for."""

    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape, recipe) for _ in range(shape.layers))
        self.norm = _norm(shape, recipe)
        self.out = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.out.weight = self.words.weight
        if recipe.adapts:
            for name, parameter in self.named_parameters():
                parameter.requires_grad = "adapter" in name and parameter.requires_grad

    def forward(self, text: Tensor) -> list[Tensor]:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.recipe.litgpt:
            return [
                self.out(part).float() for part in x.split(HEAD_CHUNK_TOKENS, dim=1)
            ]  # as Lightning hands them over
        if self.recipe.chunked:
            return [self.out(part) for part in x.chunk(LOSS_CHUNKS, dim=1)]
        return [self.out(x).float()]


class _CompiledLoss(torch.autograd.Function):
    """What torch.compile makes of a chunk's loss: logits are kept as they came, and the softmax is computed again."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        context.save_for_backward(logits, targets, logits.new_empty(len(logits), dtype=torch.float32))
        return logits.new_empty((), dtype=torch.float32)

    @staticmethod
    def backward(context: Any, *_: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(context.saved_tensors[0]), None


def loss_of(logits: list[Tensor], targets: Tensor, recipe: Recipe) -> Tensor:
    losses = []
    start = 0
    for part in logits:
        wanted = targets[:, start : start + part.shape[1]].flatten()
        start += part.shape[1]
        rows = part.flatten(0, 1)
        if recipe.compiled:
            losses.append(_CompiledLoss.apply(rows, wanted))
        else:
            losses.append(functional.cross_entropy(rows.float(), wanted, reduction="sum"))
    return torch.stack(losses).sum() / targets.numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--recipe", choices=("litgpt", "torchtune"), required=True)
    parser.add_argument("--training", choices=("full", "lora", "qlora"), required=True)
    parser.add_argument("--double-quantized", action="store_true")
    parser.add_argument("--chunked", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    given = parser.parse_args()
    shape, micro_batch = SHAPES[given.model], int(os.environ["SCAV_GPU_BATCH"])
    recipe = Recipe(given.recipe == "litgpt", given.training, given.double_quantized, given.chunked, given.compiled)
    torch.set_default_dtype(torch.bfloat16)
    model = scav_probe.shard(Decoder(shape, recipe), blocks=[Block])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=not recipe.litgpt)
    text = torch.zeros(micro_batch, given.length, dtype=torch.int64)
    for _ in range(3):
        for _ in range(int(os.environ["SCAV_ACCUMULATION"])):
            loss_of(model(text), text, recipe).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
