"""A training script with Hugging Face's Trainer, as its tutorials write them.

Its model writes down how many samples each optimizer step was given, at the data itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from logbook import Logbook
from torch import nn
from torch.utils.data import Dataset, IterableDataset
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--samples", type=int, default=4096)
parser.add_argument("--by-hand", action="store_true", help="with scav's callback")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--stream", action="store_true", help="an IterableDataset")
parser.add_argument("--drop-last", action="store_true")
parser.add_argument("--evaluate", action="store_true", help="evaluations, checkpoints and early stopping")
parser.add_argument("--log", default=None)
arguments = parser.parse_args()
logbook = Logbook(arguments.log)


def sample(number: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {"features": torch.randn(16, generator=generator), "labels": torch.tensor(number % 4)}


class Table(Dataset):
    def __len__(self) -> int:
        return arguments.samples

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return sample(number)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return map(sample, range(arguments.samples))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            logbook.forward(len(features))
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class EndOfStep(TrainerCallback):
    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        logbook.end_step()


evaluation = {
    "eval_strategy": "steps",
    "eval_steps": 5,
    "save_strategy": "steps",
    "save_steps": 5,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "report_to": "tensorboard",
}
callbacks: list[Any] = [EndOfStep()]
if arguments.evaluate:
    callbacks.append(EarlyStoppingCallback(1))
if arguments.by_hand:
    from probes import scav_probe

    callbacks.append(scav_probe.TrainerCallback())
trainer = Trainer(
    model=Net(),
    args=TrainingArguments(
        output_dir="out",
        use_cpu=True,
        per_device_train_batch_size=arguments.batch_size,
        gradient_accumulation_steps=arguments.accumulate,
        dataloader_drop_last=arguments.drop_last,
        max_steps=50 if arguments.stream else -1,
        num_train_epochs=arguments.epochs,
        disable_tqdm=True,
        **(evaluation if arguments.evaluate else {"save_strategy": "no", "report_to": "none"}),
    ),
    train_dataset=Stream() if arguments.stream else Table(),
    eval_dataset=Table() if arguments.evaluate else None,
    callbacks=callbacks,
)
trainer.train()
