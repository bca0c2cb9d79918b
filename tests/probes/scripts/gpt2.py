"""GPT-2 small on tokens, as people train it: transformers' model from its configuration, AdamW, no dropout."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH = 1024

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=12)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--bf16", action="store_true")
arguments = parser.parse_args()


class Tokens(Dataset):
    """Sequences of a long text, one after the other."""

    def __init__(self, sequences: int) -> None:
        self.tokens = torch.arange(2048 * LENGTH) * 7919 % 50257
        self.sequences = sequences

    def __len__(self) -> int:
        return self.sequences

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index % 2047 * LENGTH
        return self.tokens[start : start + LENGTH]


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
configuration = GPT2Config(n_layer=arguments.layers, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
configuration.activation_function = "gelu_pytorch_tanh"
configuration.use_cache = False
model = GPT2LMHeadModel(configuration).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
loader = DataLoader(Tokens(8_830_000), batch_size=arguments.batch_size, shuffle=False)
for tokens in loader:
    ids = tokens.to(device)
    with torch.autocast(device, dtype=torch.bfloat16) if arguments.bf16 else nullcontext():
        output = model(ids, labels=ids)
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
