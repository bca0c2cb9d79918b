"""Lightning trainings at three batch sizes with its CSV logger, and one without times: `lightning_csv.py FOLDER`."""

import sys
import warnings
from pathlib import Path

import torch

warnings.simplefilter("ignore")

from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import ThroughputMonitor  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

folder = Path(sys.argv[1])


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _index):
        loss = (self.layer(batch) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


for gpu_batch, accumulation_steps, timed in ((2, 1, True), (4, 2, True), (8, 1, True), (16, 1, False)):
    loader = torch.utils.data.DataLoader(torch.ones(1024, 8), batch_size=gpu_batch)
    Trainer(
        max_steps=60,
        max_epochs=-1,
        accumulate_grad_batches=accumulation_steps,
        log_every_n_steps=5,
        accelerator="cpu",
        logger=CSVLogger(folder, name="", version=f"batch-{gpu_batch}"),
        callbacks=[ThroughputMonitor(batch_size_fn=len, window_size=10)] if timed else [],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Model(), loader)
