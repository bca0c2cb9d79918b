"""Seconds per step of examples/tiny-transformer for each of many (workers x local batch), window by window in turn.

Run by `online.py` under torchrun. All of them take turns in the same processes (A B C A B C), so that whatever else the
machine does hits each alike; where fewer workers train, the others wait. A step is the script's: batch, gradient,
optimizer, and the question whether anybody was told to stop. Prints the median of each one's windows as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples/tiny-transformer", ".")]
import train  # noqa: E402

from probes.cluster import any_of, join, this_place  # noqa: E402
from probes.ending import leave  # noqa: E402

WINDOW_STEPS = 6


def main() -> None:
    windows, places = int(sys.argv[1]), [tuple(map(int, word.split("x"))) for word in sys.argv[2:]]
    place, text = this_place(), train.generate(2000, seed=1)
    join(place)
    alone = train.TinyTransformer()
    ways = {1: alone, place.world_size: nn.parallel.DistributedDataParallel(train.TinyTransformer())}
    optimizers = {count: torch.optim.AdamW(model.parameters(), lr=1e-4) for count, model in ways.items()}
    seconds: dict[str, list[float]] = {f"{workers}x{batch}": [] for workers, batch in places}
    for _ in range(windows + 1):  # the first warms up
        for workers, batch in places:
            dist.barrier()
            began = time.perf_counter()
            for step in range(WINDOW_STEPS if place.rank < workers else 0):
                generator = torch.Generator().manual_seed(step)
                loss = train.loss_of(ways[workers], *train.batch_at(text, generator, batch))
                optimizers[workers].zero_grad()
                loss.backward()
                optimizers[workers].step()
                loss.item()
                if workers > 1:
                    any_of([False, False], place)
            seconds[f"{workers}x{batch}"].append((time.perf_counter() - began) / WINDOW_STEPS)
    if place.rank == 0:
        print(json.dumps({name: statistics.median(found[1:]) for name, found in seconds.items()}), flush=True)
    leave()


if __name__ == "__main__":
    main()
