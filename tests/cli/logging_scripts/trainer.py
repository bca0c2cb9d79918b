"""Hugging Face trainings at three batch sizes, which log to all that its Trainer can log to: `trainer.py FOLDER`."""

import os
import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
os.environ |= {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_DIR": str(folder),
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns",
    "HF_HUB_OFFLINE": "1",
}

import mlflow  # noqa: E402
import wandb  # noqa: E402
from transformers import Trainer, TrainingArguments  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        return {"loss": ((self.layer(x)[:, 0] - labels) ** 2).mean()}


data = [{"x": torch.ones(8), "labels": torch.tensor(1.0)} for _ in range(256)]
for gpu_batch, accumulation_steps in ((2, 1), (4, 2), (8, 1)):
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / f"events-{gpu_batch}")
    arguments = TrainingArguments(
        str(folder / f"state-{gpu_batch}"),
        run_name=f"batch-{gpu_batch}",
        per_device_train_batch_size=gpu_batch,
        gradient_accumulation_steps=accumulation_steps,
        max_steps=200,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="no",
        report_to=["tensorboard", "wandb", "mlflow"],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:32])
    trainer.train()
    trainer.save_state()
    wandb.finish()
    mlflow.end_run()
