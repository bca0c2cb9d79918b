"""A training script with Lightning, as its tutorials write them.

Its model writes down how many samples each optimizer step was given, at the data itself.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from logbook import Logbook
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--samples", type=int, default=4096)
parser.add_argument("--stream", action="store_true", help="an IterableDataset")
parser.add_argument("--keep-last", action="store_true", help="drop_last=False")
parser.add_argument("--rebuild", action="store_true", help="a new DataLoader every epoch, from the module")
parser.add_argument("--data-module", action="store_true")
parser.add_argument("--evaluate", action="store_true", help="validation, checkpoints and early stopping")
parser.add_argument("--by-hand", action="store_true", help="with scav's callback")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--devices", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
parser.add_argument("--log", default=None)
arguments = parser.parse_args()
logbook = Logbook(arguments.log)
lightning.seed_everything(0, verbose=False)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(arguments.samples):
            yield torch.randn(16), torch.randint(0, 4, ())


def table(samples: int) -> TensorDataset:
    return TensorDataset(torch.randn(samples, 16), torch.arange(samples) % 4)


def loader() -> DataLoader:
    drop_last = not arguments.keep_last
    if arguments.stream:
        return DataLoader(Stream(), batch_size=arguments.batch_size, drop_last=drop_last)
    return DataLoader(table(arguments.samples), batch_size=arguments.batch_size, shuffle=True, drop_last=drop_last)


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def training_step(self, batch: Any, _number: int) -> torch.Tensor:
        logbook.forward(len(batch[0]))
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: Any, _number: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]), sync_dist=True)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        logbook.end_step()

    def train_dataloader(self) -> DataLoader:
        return loader()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        if not arguments.evaluate:
            return optimizer
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=int(steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Data(lightning.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        return loader()


callbacks: list[Any] = []
if arguments.evaluate:
    callbacks += [EarlyStopping("val_loss", patience=1), ModelCheckpoint("kept", save_on_exception=True)]
if arguments.by_hand:
    from probes import scav_probe

    callbacks.append(scav_probe.LightningCallback())
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=arguments.devices,
    max_epochs=arguments.epochs,
    accumulate_grad_batches=arguments.accumulate,
    reload_dataloaders_every_n_epochs=int(arguments.rebuild),
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=arguments.evaluate,
    logger=arguments.evaluate,
    val_check_interval=40 if arguments.evaluate else None,
    callbacks=callbacks,
)
trainer.fit(
    Net(),
    train_dataloaders=None if arguments.rebuild or arguments.data_module else loader(),
    val_dataloaders=DataLoader(table(64), batch_size=8) if arguments.evaluate else None,
    datamodule=Data() if arguments.data_module else None,
)
