"""A training loop over tensors, without any module: nobody can see from outside how many samples it takes."""

import sys

import torch

batch = int(sys.argv[1])
weights = torch.randn(16, 4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.01)
while True:
    optimizer.zero_grad()
    (torch.randn(batch, 16) @ weights).square().mean().backward()
    optimizer.step()
