"""Searching while training, with real processes: `scav tune --online` against knowing the best, probing first, neither.

Trains examples/tiny-transformer to a fixed loss of unseen sentences. Each configuration (workers x local batch) is
trained straight through, by the script itself under torchrun; the fastest of them is the oracle, the one that has the
job's reference batch on all workers is what is run without tuning. `scav tune --online` starts with nothing known but
the samples that two batch sizes took, which the straight runs tell. Offline is the time of `scav tune`, which trains
nothing, and that of a straight run with its choice. All times are of the clock, starts of processes included, each
seed's one after the other; on a machine that is busy with something else they say little: the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "tiny-transformer"
SEEDS = (1, 2, 3)
TARGET, LEARNING_RATE = 0.4, 1e-4
WORKERS = (1, 2)


class Place(NamedTuple):
    workers: int
    gpu_batch: int

    @property
    def global_batch(self) -> int:
        return self.workers * self.gpu_batch

    def __str__(self) -> str:
        return f"{self.workers} x {self.gpu_batch}"


PLACES = (Place(1, 16), Place(1, 64), Place(2, 8), Place(2, 16), Place(2, 64))
NEVER = Place(2, 16)


class Trained(NamedTuple):
    seconds: float
    samples: int
    loss: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--target", type=float, default=TARGET)
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    arguments = parser.parse_args()
    rows = [of_seed(seed, arguments.target, arguments.learning_rate) for seed in arguments.seeds]
    print(json.dumps(rows, indent=2) if arguments.json else as_markdown(rows))


def of_seed(seed: int, target: float, learning_rate: float) -> dict[str, Any]:
    endless = ["train.py", "--learning-rate", str(learning_rate), "--seed", str(seed)]  # as long as a probe takes
    script = [*endless, "--target", str(target)]
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="scav-online-") as temporary:
        folder = Path(temporary)
        straight = {
            place: train_straight(script, place, folder / f"{place.workers}-{place.gpu_batch}") for place in PLACES
        }
        known = {batch: straight[Place(1, batch)].samples for batch in (16, 64)}
        online = tune(script, job_folder(folder / "online", known), "--online")
        loads.append(os.getloadavg()[0])
        offline = tune(endless, job_folder(folder / "offline", known))
        chosen = chosen_of(offline.stdout)
        after = straight.get(chosen) or train_straight(script, chosen, folder / "chosen")
        journal = [json.loads(line) for line in (folder / "online" / "scav-online" / "stretches.jsonl").open()]
        log = (folder / "online" / "scav-online" / "log.txt").read_text(encoding="utf-8")
    best = min(PLACES, key=lambda place: straight[place].seconds)
    return {
        "seed": seed,
        "loads": loads,
        "straight": {str(place): trained._asdict() for place, trained in straight.items()},
        "oracle": str(best),
        "online_seconds": online.seconds,
        "online_loss": unseen_loss(log),
        "starts": len(journal),
        "online_choice": f"{journal[-1]['workers']} x {journal[-1]['gpu_batch']}",
        "online_samples": sum(stretch.get("samples", 0) for stretch in journal),
        "offline_seconds": offline.seconds + after.seconds,
        "offline_choice": str(chosen),
        "over_oracle": {
            "online": online.seconds / straight[best].seconds,
            "offline": (offline.seconds + after.seconds) / straight[best].seconds,
            "never": straight[NEVER].seconds / straight[best].seconds,
        },
    }


def job_folder(folder: Path, known: dict[int, int]) -> Path:
    """The example's job, with what these runs took."""
    folder.mkdir()
    shutil.copy(EXAMPLE / "train.py", folder)
    text = (EXAMPLE / "scav.yaml").read_text(encoding="utf-8")
    (first, samples), (second, others) = known.items()
    text = re.sub(r"samples: 2760\n    reference_batch: 32", f"samples: {samples}\n    reference_batch: {first}", text)
    text = re.sub(r"    runs:\n(      - .*\n)+", f"    runs:\n      - {{batch: {second}, samples: {others}}}\n", text)
    (folder / "scav.yaml").write_text(text, encoding="utf-8")
    return folder


def train_straight(script: list[str], place: Place, checkpoints: Path) -> Trained:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={place.workers}"]
    environment = {
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "SCAV_GPU_BATCH": str(place.gpu_batch),
        "SCAV_LR_SCALE": str(place.global_batch / 16),
        "SCAV_CHECKPOINT_DIR": str(checkpoints),
    }
    began = time.monotonic()
    done = subprocess.run(
        [*launcher, *script], cwd=EXAMPLE, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    steps = re.findall(r"finished after (\d+) steps", done.stdout)
    seconds = time.monotonic() - began
    return Trained(seconds, int(steps[-1]) * place.global_batch, unseen_loss(done.stdout))


class Tuned(NamedTuple):
    seconds: float
    stdout: str


def tune(script: list[str], folder: Path, *options: str) -> Tuned:
    workers = [f"--workers={count}" for count in WORKERS]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "planner", "tune", str(folder), *workers, *options, "--", *script],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Tuned(time.monotonic() - began, done.stdout)


def chosen_of(output: str) -> Place:
    found = re.search(r"Best here: (\d+) workers?, local batch ([\d,]+)", output)
    assert found is not None, output
    return Place(int(found[1]), int(found[2].replace(",", "")))


def unseen_loss(output: str) -> float:
    return float(re.findall(r"unseen sentences: loss ([\d.]+)", output)[-1])


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| seed | load | oracle | online | offline | never | starts | loss online | straight |"]
    lines += ["|--:|--:|---|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        over, best = row["over_oracle"], row["straight"][row["oracle"]]
        lines.append(
            f"| {row['seed']} | {max(row['loads']):.1f} | {row['oracle']}, {best['seconds']:.0f} s "
            f"| {row['online_choice']}, {over['online']:.2f} | {row['offline_choice']}, {over['offline']:.2f} "
            f"| {NEVER}, {over['never']:.2f} | {row['starts']} | {row['online_loss']:.4f} | {best['loss']:.4f} |"
        )
    means = {way: statistics.fmean(row["over_oracle"][way] for row in rows) for way in ("online", "offline", "never")}
    said = ", ".join(f"{way} {mean:.2f}" for way, mean in means.items())
    return "\n".join([*lines, "", f"Total time over the oracle's, mean of {len(rows)} seeds: {said}."])


if __name__ == "__main__":
    main()
