"""A small Llama on generated text: sums in words, spread over processes as SCAV_STRATEGY says.

RMS norms, rotary positions, gated feed-forward and grouped queries in plain PyTorch. DDP, FSDP2, HSDP, tensor
parallelism and recompute by one line; `--lora 8` trains adapters only. Learns on a CPU in under a minute. Checkpoints
are sharded and written in the background; a run continues from them on another number of processes.
"""

from __future__ import annotations

import argparse
import os
import random

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from probes import scav_probe
from probes.cluster import this_place
from probes.ending import leave
from probes.sharded_checkpoints import ShardedCheckpoints

LENGTH, WIDTH, LAYERS, HEADS, KEY_VALUE_HEADS, FEED_FORWARD = 48, 64, 4, 4, 2, 192
HEAD_WIDTH = WIDTH // HEADS
ALPHABET = "abcdefghijklmnopqrstuvwxyz .,;:'"  # some unused, so that 2 and 4 processes can share it
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TENSOR_PLAN = {
    "letters": RowwiseParallel(input_layouts=Replicate()),
    "blocks.*.query": ColwiseParallel(),
    "blocks.*.key": ColwiseParallel(),
    "blocks.*.value": ColwiseParallel(),
    "blocks.*.mix": RowwiseParallel(),
    "blocks.*.gate": ColwiseParallel(),
    "blocks.*.up": ColwiseParallel(),
    "blocks.*.down": RowwiseParallel(),
    "out": ColwiseParallel(output_layouts=Replicate()),
}


class LoraLinear(nn.Module):
    """A frozen layer and a product of two thin matrices beside it, which begins as zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feed_forward = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.mix = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, WIDTH, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self._attention(self.before_attention(x), cosines, sines)
        y = self.before_feed_forward(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    def _attention(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        # As many heads as this process has: with tensor parallelism a part of them.
        query, key, value = (
            layer(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        query, key = _rotated(query, cosines, sines), _rotated(key, cosines, sines)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.mix(attended.transpose(1, 2).flatten(2))


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions: the two halves of each head are the two sides of its angles."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)


class TinyLlama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.out = nn.Linear(WIDTH, len(ALPHABET), bias=False)
        speeds = 10_000.0 ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
        angles = torch.outer(torch.arange(LENGTH), speeds)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        x = self.letters(text)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return self.out(self.norm(x))


def with_adapters(model: TinyLlama, rank: int) -> TinyLlama:
    """All is frozen but adapters on queries and values."""
    model.requires_grad_(False)
    for block in model.blocks:
        block.query, block.value = LoraLinear(block.query, rank), LoraLinear(block.value, rank)
    return model


def generate(sentences: int, seed: int) -> Tensor:
    """`four and three is seven.`: predictable after `is`, guesswork before it."""
    draw = random.Random(seed)
    text = ""
    for _ in range(sentences):
        first, second = draw.randrange(5), draw.randrange(5)
        text += f"{NUMBERS[first]} and {NUMBERS[second]} is {NUMBERS[first + second]}. "
    return torch.tensor([ALPHABET.index(letter) for letter in text])


def batch_at(text: Tensor, step: int, part: int, parts: int, size: int) -> tuple[Tensor, Tensor]:
    """One process's part of a step's batch. The batch follows from the step: whoever continues sees what comes next."""
    generator = torch.Generator().manual_seed(1_000_003 * step)
    starts = torch.randint(0, len(text) - LENGTH - 1, (parts * size,), generator=generator)
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts[part * size : (part + 1) * size]])
    return windows[:, :-1], windows[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters of this rank only")
    arguments = parser.parse_args()
    place, strategy = this_place(), scav_probe.strategy()
    batch = int(os.environ.get("SCAV_GPU_BATCH", "16"))
    accumulation = int(os.environ.get("SCAV_ACCUMULATION", "1"))
    torch.manual_seed(0)
    model: nn.Module = TinyLlama()
    if arguments.lora:
        with_adapters(model, arguments.lora)
    model = scav_probe.shard(model, blocks=[Block], tensor_plan=None if arguments.lora else TENSOR_PLAN)
    part, parts = scav_probe.data_parallel()
    scale = float(os.environ.get("SCAV_LR_SCALE", "1")) ** 0.5
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=(2e-2 if arguments.lora else 2e-3) * scale)
    text = generate(2000, seed=1)
    checkpoints = ShardedCheckpoints(model, optimizer)
    first = checkpoints.load()
    if place.rank == 0:
        print(f"{strategy.sharding} on {place.world_size}, from step {first}", flush=True)
    for step in range(first, arguments.steps):
        optimizer.zero_grad()
        total = torch.zeros((), device=place.device)
        for micro_step in range(accumulation):
            inputs, targets = batch_at(text, accumulation * step + micro_step, part, parts, batch)
            logits = model(inputs.to(place.device)).flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, targets.to(place.device).flatten()) / accumulation
            loss.backward()
            total += loss.detach()
        optimizer.step()
        if (step + 1) % arguments.log_every == 0:
            dist.all_reduce(total)
            if place.rank == 0:
                print(f"step {step + 1}: loss {total.item() / place.world_size:.6f}", flush=True)
        checkpoints.after_step(step + 1)
    checkpoints.finish()
    leave()


if __name__ == "__main__":
    main()
