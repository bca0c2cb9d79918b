"""A small transformer on generated text: arithmetic in words, whose structure it has to learn.

Trains on a CPU in under a minute, resumes from its checkpoint, and stops in order on SIGTERM (exit 13).
"""

from __future__ import annotations

import argparse
import os
import random

import torch
from torch import nn

from probes.checkpoints import Checkpoints
from probes.cluster import any_of, join, this_place
from probes.ending import leave

LENGTH, WIDTH, HEADS, LAYERS = 32, 64, 4, 2
ALPHABET = "abcdefghijklmnopqrstuvwxyz .="
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BATCH = int(os.environ.get("SCAV_GPU_BATCH", "32"))
LOOK_EVERY = 50  # steps
LEARNING_RATE_SCALE = float(os.environ.get("SCAV_LR_SCALE", "1"))


def generate(sentences: int, seed: int) -> torch.Tensor:
    """`four and three = seven.`: predictable after the equals sign, guesswork before it."""
    draw = random.Random(seed)
    text = ""
    for _ in range(sentences):
        first, second = draw.randrange(5), draw.randrange(5)
        text += f"{NUMBERS[first]} and {NUMBERS[second]} = {NUMBERS[first + second]}. "
    return torch.tensor([ALPHABET.index(letter) for letter in text])


class TinyTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, len(ALPHABET))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.letters(text) + self.places, mask=self.mask, is_causal=True))


def batch_at(text: torch.Tensor, generator: torch.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(0, len(text) - LENGTH - 1, (size,), generator=generator)
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="at the reference batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=float, default=None, help="stop at this loss of sentences not trained on")
    arguments = parser.parse_args()
    place = this_place()
    join(place)
    torch.manual_seed(arguments.seed)
    model: nn.Module = TinyTransformer()
    trained = model
    if place.world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    rate = arguments.learning_rate * LEARNING_RATE_SCALE**0.5
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    text, held_out = generate(2000, seed=1), generate(400, seed=2)
    asked = batch_at(held_out, torch.Generator().manual_seed(0), 256)
    checkpoints = Checkpoints()
    first = 0
    if state := checkpoints.load():
        first = state["step"]
        trained.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for group in optimizer.param_groups:  # the old rate came with it, and the batch may be another
            group["lr"] = rate
        print(f"resumed at step {first}", flush=True)
    smooth, done = None, first
    for step in range(first, arguments.steps):
        # Batches follow from the step, so that a resumed run sees what an uninterrupted one would have seen.
        generator = torch.Generator().manual_seed(1_000_003 * step + 1009 * arguments.seed + place.rank)
        loss = loss_of(model, *batch_at(text, generator, BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if place.rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {smooth:.4f}", flush=True)
        done = step + 1
        if arguments.target is not None and done % LOOK_EVERY == 0:
            with torch.no_grad():
                reached = float(loss_of(trained, *asked)) <= arguments.target
            if any_of([reached], place)[0]:
                break
        checkpoints.after_step(
            lambda done=done: {"step": done, "model": trained.state_dict(), "optimizer": optimizer.state_dict()}
        )
    if place.rank == 0:
        print(f"finished after {done} steps\nfinished: loss {smooth:.6f}", flush=True)
        with torch.no_grad():
            print(f"unseen sentences: loss {float(loss_of(trained, *asked)):.6f}", flush=True)
    leave()


if __name__ == "__main__":
    main()
