"""One optimizer for matrices and one for the rest, as Muon is used; with --in-turn each after a backward of its own."""

from __future__ import annotations

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--in-turn", action="store_true")
arguments = parser.parse_args()
batch = int(os.environ.get("SCAV_GPU_BATCH", "16"))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
first = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.dim() > 1], lr=0.01, momentum=0.9)
second = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.dim() == 1], lr=0.01)


def go_backward() -> None:
    model.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(batch, 16)), torch.randint(0, 4, (batch,))).backward()


for _ in range(3000):
    go_backward()
    first.step()
    if arguments.in_turn:
        go_backward()
    second.step()
