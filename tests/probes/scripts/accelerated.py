"""A training loop with Hugging Face's Accelerate, as its tutorials write them.

It writes down how many samples each optimizer step was given, at the data itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from logbook import Logbook
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--samples", type=int, default=4096)
parser.add_argument("--stream", action="store_true", help="an IterableDataset")
parser.add_argument("--keep-last", action="store_true", help="drop_last=False")
parser.add_argument("--rebuild", action="store_true", help="a new DataLoader every epoch")
parser.add_argument("--split", action="store_true", help="the loader's batch is that of all processes")
parser.add_argument("--batch-sampler", action="store_true", help="a loader with a batch sampler of the script")
parser.add_argument("--log", default=None)
arguments = parser.parse_args()
logbook = Logbook(arguments.log)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(arguments.samples):
            yield torch.randn(16), torch.randint(0, 4, ())


accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=arguments.accumulate,
    dataloader_config=DataLoaderConfiguration(split_batches=arguments.split),
)
data = TensorDataset(torch.randn(arguments.samples, 16), torch.arange(arguments.samples) % 4)
drop_last = not arguments.keep_last


def loader() -> DataLoader:
    size = arguments.batch_size * (accelerator.num_processes if arguments.split else 1)
    if arguments.stream:
        return accelerator.prepare(DataLoader(Stream(), batch_size=size, drop_last=drop_last))
    if arguments.batch_sampler:
        batches = BatchSampler(RandomSampler(data), batch_size=size, drop_last=drop_last)
        return accelerator.prepare(DataLoader(data, batch_sampler=batches))
    return accelerator.prepare(DataLoader(data, batch_size=size, shuffle=True, drop_last=drop_last))


net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
once = loader()
for _epoch in range(10_000):
    for x, y in loader() if arguments.rebuild else once:
        with accelerator.accumulate(model):
            logbook.forward(len(x))
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            logbook.end_step()
