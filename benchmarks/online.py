"""Searching while training, with real processes: `scav tune --online` against knowing the best, probing first, neither.

Trains examples/tiny-transformer to a fixed loss of unseen sentences, with any of ten workers x local batch. Straight
runs of one process tell how many samples each global batch takes, seed by seed (of those between them: in between).
`scav tune --online` is given what the smallest and the largest took, and trains from the first step to the target.
Offline is `scav tune`, which trains nothing, and then a straight run with its choice. Never tuning is the job's
reference batch on all workers; the oracle the best of the ten.

A machine that is busy with something else makes a clock say little. So steps are counted, and all ways pay the same for
a step of one configuration: what `online_steps.py` measured around and between the runs, all configurations in turn.
A step that scav watches takes more by as much as it takes more processor time, which is measured there, too.
What is no step is of the clock: the search's own time, each stretch's start and end, the offline probes; and one usual
start under torchrun for every straight run. `clock` is the online run's whole time as it was over the oracle's, whose
steps are taken as measured right before and after.

What is in --work is not run again, so that an interrupted benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "tiny-transformer"
SEEDS = (1, 2, 3)
TARGET, LEARNING_RATE = 0.33, 3e-5
REFERENCE = 16
STRAIGHT = (16, 32, 64)  # global batches
WINDOWS = 8
WATCHED_STEPS = 600
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


class Place(NamedTuple):
    workers: int
    gpu_batch: int

    @property
    def global_batch(self) -> int:
        return self.workers * self.gpu_batch

    def __str__(self) -> str:
        return f"{self.workers}x{self.gpu_batch}"


PLACES = [Place(1, batch) for batch in (16, 24, 32, 48, 64)] + [Place(2, batch) for batch in (8, 12, 16, 24, 32)]
NEVER = Place(2, REFERENCE // 2)


class Timed(NamedTuple):
    """One look at all configurations: seconds per step, and of a start under torchrun with its end."""

    steps: dict[str, float]
    start: float
    watching: float  # processor time of a step that scav measures, over that of the script alone
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--work", type=Path, required=True, help="folder for runs and what they printed")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = of_seeds(arguments.work.resolve(), arguments.seeds)
    print(json.dumps(rows, indent=2) if arguments.json else as_markdown(rows))


def of_seeds(work: Path, seeds: list[int]) -> list[dict[str, Any]]:
    samples = {seed: straight_samples(work, seed) for seed in seeds}
    looks, runs = [timed(work, 0)], []
    for number, seed in enumerate(seeds, start=1):
        runs.append(tuned_runs(work, seed, samples[seed]))
        looks.append(timed(work, number))
    usual = {str(place): statistics.median(look.steps[str(place)] for look in looks) for place in PLACES}
    start, watching = (statistics.median(getattr(look, name) for look in looks) for name in ("start", "watching"))
    return [
        of_seed(work, seed, samples[seed], run, usual, start, watching, looks[number : number + 2])
        for number, (seed, run) in enumerate(zip(seeds, runs, strict=True))
    ]


def of_seed(
    work: Path,
    seed: int,
    samples: dict[int, float],
    run: dict[str, Any],
    usual: dict[str, float],
    start: float,
    watching: float,
    near: list[Timed],
) -> dict[str, Any]:
    def straight(place: Place, step: dict[str, float] = usual) -> float:
        known = np.log([*samples.items()]).T
        return (
            start + float(np.exp(np.interp(np.log(place.global_batch), *known))) / place.global_batch * step[str(place)]
        )

    beside = {name: statistics.fmean(look.steps[name] for look in near) for name in usual}
    journal = run["stretches"]
    straight_losses = [
        unseen_loss(each.read_text(encoding="utf-8")) for each in sorted(work.glob(f"straight-*-seed{seed}.txt"))
    ]
    steps = watching * sum(each.get("steps", 0) * usual[name_of(each)] for each in journal)
    starts = sum(each.get("startup_seconds", 0) + each.get("stopping_seconds", 0) for each in journal)
    own = run["online_seconds"] - sum(each["seconds"] for each in journal)
    best, chosen = min(PLACES, key=straight), Place(*run["offline_choice"])
    oracle = straight(best)
    ways = {
        "online": own + starts + steps,
        "offline": run["offline_seconds"] + straight(chosen),
        "never": straight(NEVER),
    }
    return {
        "seed": seed,
        "load": [look.load for look in near],
        "oracle": str(best),
        "oracle_seconds": oracle,
        "seconds": ways,
        "over_oracle": {way: seconds / oracle for way, seconds in ways.items()},
        "clock": run["online_seconds"] / min(straight(place, beside) for place in PLACES),
        "beside_steps": own + starts,
        "watching": watching,
        "starts": len(journal),
        "online_choice": name_of(journal[-1]),
        "offline_choice": str(chosen),
        "samples": [sum(each.get("samples", 0) for each in journal), samples],
        "losses": [run["online_loss"], *straight_losses],
        "step_seconds": usual,
    }


def straight_samples(work: Path, seed: int) -> dict[int, float]:
    found = {}
    for batch in STRAIGHT:
        text = printed(work / f"straight-1x{batch}-seed{seed}.txt", script(seed), batch, work / f"saved-{batch}-{seed}")
        found[batch] = float(re.findall(r"finished after (\d+) steps", text)[-1]) * batch
    return found


def script(seed: int) -> list[str]:
    return ["train.py", "--learning-rate", str(LEARNING_RATE), "--seed", str(seed), "--target", str(TARGET)]


def printed(file: Path, arguments: list[str], batch: int, checkpoints: Path) -> str:
    """Of the script alone in one process, at once or before."""
    if not file.exists():
        environment = {
            "SCAV_GPU_BATCH": str(batch),
            "SCAV_LR_SCALE": str(batch / REFERENCE),
            "SCAV_CHECKPOINT_DIR": str(checkpoints),
        }
        file.with_suffix(".part").write_text(said([sys.executable, *arguments], environment), encoding="utf-8")
        shutil.rmtree(checkpoints, ignore_errors=True)
        file.with_suffix(".part").rename(file)
    return file.read_text(encoding="utf-8")


def said(command: list[str], environment: dict[str, str] | None = None) -> str:
    own = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.run(command, cwd=EXAMPLE, env=own, stdout=subprocess.PIPE, text=True, check=True).stdout


def timed(work: Path, number: int) -> Timed:
    file = work / f"steps-{number}.json"
    if not file.exists():
        steps = REPOSITORY / "benchmarks" / "online_steps.py"
        found = said([*TORCHRUN, "--nproc-per-node=2", str(steps), str(WINDOWS), *map(str, PLACES)])
        began = time.monotonic()
        said([*TORCHRUN, "--nproc-per-node=2", "train.py", "--steps", "1"], {"SCAV_CHECKPOINT_DIR": str(work / "none")})
        seconds = time.monotonic() - began
        watching = processor_seconds(work, ["-m", "--", "probes.run"]) / processor_seconds(work, [])
        file.write_text(json.dumps(Timed(json.loads(found), seconds, watching, os.getloadavg()[0])), encoding="utf-8")
    return Timed(*json.loads(file.read_text(encoding="utf-8")))


def processor_seconds(work: Path, watched_by: list[str]) -> float:
    """Of many steps on two workers, with the looks that a run of so many has."""

    def spent(steps: int) -> float:
        folder = work / "watched"
        folder.mkdir()
        own = {
            "SCAV_GPU_BATCH": "16",
            "SCAV_CHECKPOINT_DIR": str(folder),
            "SCAV_PROBE_OUTPUT": str(folder / "probe.json"),
        }
        own |= {"SCAV_PROBE_STRETCH": "run", "SCAV_PROBE_WINDOWS": "4", "SCAV_PROBE_WINDOW_STEPS": "10"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said([*TORCHRUN, "--nproc-per-node=2", *watched_by, "train.py", "--steps", str(steps)], own)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        shutil.rmtree(folder)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return spent(WATCHED_STEPS) - spent(1)


def tuned_runs(work: Path, seed: int, samples: dict[int, float]) -> dict[str, Any]:
    file = work / f"tuned-{seed}.json"
    if not file.exists():
        folder = work / f"online-{seed}"
        began = time.monotonic()
        tune(script(seed), job_folder(folder, samples), "--online")
        online_seconds = time.monotonic() - began
        began = time.monotonic()
        endless = script(seed)[:-2]  # as long as a probe takes
        offline = tune(endless, job_folder(work / f"offline-{seed}", samples))
        offline_seconds = time.monotonic() - began
        choice = re.search(r"Best here: (\d+) workers?, local batch ([\d,]+)", offline)
        assert choice is not None, offline
        found = {
            "online_seconds": online_seconds,
            "online_loss": unseen_loss((folder / "scav-online" / "log.txt").read_text(encoding="utf-8")),
            "stretches": [json.loads(line) for line in (folder / "scav-online" / "stretches.jsonl").open()],
            "offline_seconds": offline_seconds,
            "offline_choice": [int(number.replace(",", "")) for number in choice.groups()],
        }
        file.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def job_folder(folder: Path, samples: dict[int, float]) -> Path:
    """The example's job, with what the smallest and the largest batch took."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(EXAMPLE / "train.py", folder)
    text = (EXAMPLE / "scav.yaml").read_text(encoding="utf-8")
    (first, few), (second, many) = min(samples.items()), max(samples.items())
    for pattern, new in (
        (r"global_batch: 16\.\.128", f"global_batch: {first}..{second}"),
        (r"samples: 2760\n    reference_batch: 32", f"samples: {few:.0f}\n    reference_batch: {first}"),
        (r"    runs:\n(      - .*\n)+", f"    runs:\n      - {{batch: {second}, samples: {many:.0f}}}\n"),
    ):
        text, count = re.subn(pattern, new, text)
        assert count == 1, pattern
    (folder / "scav.yaml").write_text(text, encoding="utf-8")
    return folder


def tune(arguments: list[str], folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "planner", "tune", str(folder), "--workers=1", "--workers=2", *options]
    return said([*command, "--", *arguments])


def unseen_loss(output: str) -> float:
    return float(re.findall(r"unseen sentences: loss ([\d.]+)", output)[-1])


def name_of(stretch: dict[str, Any]) -> str:
    return str(Place(stretch["workers"], stretch["gpu_batch"]))


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| seed | load | oracle | online | its starts | offline | never | by the clock | loss online | straight |"]
    lines += ["|--:|--:|---|---|--:|---|---|--:|--:|---|"]
    for row in rows:
        over, (loss, *straight) = row["over_oracle"], row["losses"]
        lines.append(
            f"| {row['seed']} | {max(row['load']):.0f} | {row['oracle']}, {row['oracle_seconds']:.0f} s "
            f"| {row['online_choice']}, {over['online']:.2f} | {row['starts']}, {row['beside_steps']:.0f} s "
            f"| {row['offline_choice']}, {over['offline']:.2f} | {NEVER}, {over['never']:.2f} | {row['clock']:.2f} "
            f"| {loss:.4f} | {min(straight):.4f} to {max(straight):.4f} |"
        )
    means = {way: statistics.fmean(row["over_oracle"][way] for row in rows) for way in ("online", "offline", "never")}
    text = ", ".join(f"{way} {mean:.2f}" for way, mean in means.items())
    return "\n".join([*lines, "", f"Total time over the oracle's, mean of {len(rows)} seeds: {text}."])


if __name__ == "__main__":
    main()
