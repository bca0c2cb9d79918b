"""A loop of its own that logs to TensorBoard, and keeps no word of its batch: `summary_writer.py FOLDER`."""

import sys
import time

from torch.utils.tensorboard import SummaryWriter

with SummaryWriter(sys.argv[1]) as writer:
    for step in range(0, 100, 10):
        time.sleep(0.01)
        writer.add_scalar("loss", 1 / (step + 1), step)
