"""A small CNN on scikit-learn's handwritten digits. An ordinary script: it knows nothing of scav but its variables.

Trains to 97 % test accuracy on a CPU in well under a minute.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BATCH = int(os.environ.get("SCAV_GPU_BATCH", "64"))
LEARNING_RATE_SCALE = float(os.environ.get("SCAV_LR_SCALE", "1"))
IS_TRAINING_RUN = os.environ.get("SCAV_RUN_ID", "probe") != "probe"  # and not one that is only measured


class DigitsCnn(nn.Module):
    """Group normalisation, not batch normalisation: gradients of samples must not depend on each other."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(8, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.GroupNorm(8, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def load(seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Four of five digits to train with, each fifth to test; shuffled once."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    images, labels = data.tensors
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument(
        "--target", type=float, default=0.97 if IS_TRAINING_RUN else None, help="stop at this test accuracy"
    )
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train, test = load()
    model = DigitsCnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * LEARNING_RATE_SCALE, momentum=0.9)
    shuffle = torch.Generator().manual_seed(1000 + RANK)  # every process draws its own batches
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True, generator=shuffle)
    for epoch in range(arguments.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if arguments.target is not None:
            reached = accuracy(model, test)
            print(f"epoch {epoch + 1}: test accuracy {reached:.3f}", flush=True)
            if reached >= arguments.target:
                break
    if IS_TRAINING_RUN and RANK == 0:
        save(model, Path(os.environ["SCAV_CHECKPOINT_DIR"]))


def save(model: nn.Module, folder: Path) -> None:
    """Under its name only when it is whole: the folder is copied to S3 meanwhile."""
    torch.save(model.state_dict(), folder / "model.pt.tmp")
    (folder / "model.pt.tmp").rename(folder / "model.pt")


if __name__ == "__main__":
    main()
