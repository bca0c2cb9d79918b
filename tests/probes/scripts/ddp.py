"""A plain training script with argparse, DistributedDataParallel where there are several processes, and accumulation.

It writes down what it trained with, one line per optimizer step, as many scripts do.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--samples", type=int, default=4096)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--stream", action="store_true", help="an IterableDataset")
parser.add_argument("--keep-last", action="store_true", help="drop_last=False")
parser.add_argument("--rebuild", action="store_true", help="a new DataLoader every epoch")
parser.add_argument("--checkpointing", action="store_true", help="activations are computed again in the backward")
parser.add_argument("--evaluate", action="store_true", help="the model is called for other reasons as well")
parser.add_argument("--log", default=None)
arguments = parser.parse_args()


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(arguments.samples):
            yield torch.randn(16), torch.randint(0, 4, ())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, arguments.width), nn.Linear(arguments.width, 4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if arguments.checkpointing:
            hidden = torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=False)
        else:
            hidden = self.first(x)
        return self.last(torch.relu(hidden)) * scale


if "RANK" in os.environ and not dist.is_initialized():
    dist.init_process_group("gloo")
torch.manual_seed(0)
model: nn.Module = Net()
if dist.is_initialized():
    model = nn.parallel.DistributedDataParallel(model)
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = (
    Stream()
    if arguments.stream
    else TensorDataset(torch.randn(arguments.samples, 16), torch.arange(arguments.samples) % 4)
)
several = dist.is_initialized() and not arguments.stream
sampler = DistributedSampler(data) if several else None


def loader() -> DataLoader:
    return DataLoader(data, batch_size=arguments.batch_size, sampler=sampler, drop_last=not arguments.keep_last)


log = None
if arguments.log:
    log = Path(f"{arguments.log}.{os.environ.get('RANK', 0)}").open("w", buffering=1, encoding="utf-8")  # noqa: SIM115
once, scale = loader(), torch.ones(())
samples = micro_steps = 0
for _epoch in range(100_000):
    if arguments.evaluate:
        model.eval()
        with torch.no_grad():
            model(torch.randn(3, 16), scale)
        model.train()
    for x, y in loader() if arguments.rebuild else once:
        loss_function(model(x, scale), y).backward()
        samples, micro_steps = samples + len(x), micro_steps + 1
        if micro_steps == arguments.accumulate:
            optimizer.step()
            optimizer.zero_grad()
            if log:
                log.write(f"{samples} {micro_steps}\n")
            samples = micro_steps = 0
