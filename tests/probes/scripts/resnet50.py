"""ResNet-50 at 224 pixels: transformers' default configuration is torchvision's resnet50, parameter for parameter."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import ResNetConfig, ResNetForImageClassification

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
arguments = parser.parse_args()


class Images(Dataset):
    def __len__(self) -> int:
        return 1_281_167

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 224, 224), index / 1_281_167), index % 1000


torch.manual_seed(0)
model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_function = nn.CrossEntropyLoss()
for images, labels in DataLoader(Images(), batch_size=arguments.batch_size):
    optimizer.zero_grad()
    loss_function(model(images).logits, labels).backward()
    optimizer.step()
