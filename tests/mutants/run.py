"""Which small changes of the core rooms do the fast tests notice? `make mutants` draws some and says.

Each mutant is written into a copy of the tree. The fast tests that run its line are run there, the quickest first,
until one fails or they have had 40 s of processor. A test that takes ten times as long as usual hangs, which is noticed
too; a busy machine is not. Verdicts are kept under the temporary folder: a run that was stopped goes on where it was,
and after new tests only what survived is judged again. Without that folder all is judged again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from changes import Change, changes, mutated, normal
from choice import Stage, digest, record, unignored_signals

REPOSITORY = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")
ROOMS = ("inputs", "models", "spot", "search", "probing", "plan")
BESIDE = ("columns.py", "contract.py", "errors.py", "units.py")
NOT_COPIED = (".git", ".venv", ".terraform", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", "build", "dist")
MEMORY_BYTES = 12 * 2**30
NOTICED = {"killed", "hung"}


class Verdict(NamedTuple):
    change: Change
    how: str  # killed, hung, golden, survived
    seconds: float  # of processor


def core_files() -> list[Path]:
    rooms = [file for room in ROOMS for file in sorted((REPOSITORY / "planner" / room).rglob("*.py"))]
    return [*rooms, *(REPOSITORY / "planner" / name for name in BESIDE)]


def drawn(count: int, seed: int, only: str = "", files: Sequence[Path] | None = None) -> list[Change]:
    """Those whose names have the smallest hashes: any is as likely, and an edit elsewhere draws no others."""
    found = [
        change
        for file in files or core_files()
        for change in changes(file.read_text(encoding="utf-8"), str(file.relative_to(REPOSITORY)))
        if only in change.key
    ]
    found.sort(key=lambda change: hashlib.sha256(f"{seed} {change.key}".encode()).digest())
    return found[:count]


def reasons(text: str) -> dict[str, str]:
    """Of `survivors.md`: what survives, and why that is right."""
    found = {}
    for line in text.splitlines():
        if line.startswith("- planner/"):
            key, _, reason = line[2:].partition(" — ")
            found[key] = reason
    return found


def copy_tree(target: Path) -> None:
    shutil.copytree(REPOSITORY, target, ignore=shutil.ignore_patterns(*NOT_COPIED))
    for file in core_files():
        copied = target / file.relative_to(REPOSITORY)
        copied.write_text(normal(file.read_text(encoding="utf-8")), encoding="utf-8")


def environment(tree: Path) -> dict[str, str]:
    path = f"{tree}{os.pathsep}{Path(__file__).parent}"
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": path}


class Judged:
    """Verdicts of this run and of earlier ones.

    That a mutant is noticed holds while its file is what it was; that it is not, while all tests are, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tests = digest(sorted((REPOSITORY / "tests").rglob("*.py")))
        folder.mkdir(parents=True, exist_ok=True)

    def verdict(self, change: Change) -> Verdict | None:
        for file in (self._file(change), self._file(change, self.tests)):
            if file.exists():
                return Verdict(change, **json.loads(file.read_text(encoding="utf-8")))
        return None

    def keep(self, verdict: Verdict) -> None:
        file = self._file(verdict.change, *([] if verdict.how in NOTICED else [self.tests]))
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({"how": verdict.how, "seconds": verdict.seconds}), encoding="utf-8")
        partial.replace(file)

    def _file(self, change: Change, *also: str) -> Path:
        name = " ".join([change.key, digest([REPOSITORY / change.file]), *also])
        return self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


class Trees:
    """A copy of the tree for each worker."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.own = folder, threading.local()

    def mine(self) -> Path:
        if not hasattr(self.own, "tree"):
            self.own.tree = Path(tempfile.mkdtemp(dir=self.folder)) / "scav"
            copy_tree(self.own.tree)
        return Path(self.own.tree)


def judge(change: Change, stages: Sequence[Stage], tree: Path) -> Verdict:
    file = tree / change.file
    before = file.read_text(encoding="utf-8")
    file.write_text(mutated(before, change), encoding="utf-8")
    try:
        spent = 0.0
        for how, usual_seconds in stages:
            code, seconds = _run(usual_seconds, tree)
            spent += seconds
            if code == -signal.SIGPROF:
                return Verdict(change, "hung", spent)
            if code not in {0, 5}:
                return Verdict(change, how, spent)
        return Verdict(change, "survived", spent)
    finally:
        file.write_text(before, encoding="utf-8")


def _run(usual_seconds: dict[str, float], tree: Path) -> tuple[int, float]:
    """The exit code of pytest, and its seconds of processor. Tests run in the order that they are named in."""
    names, usual = tree / "names.txt", tree / "usual.json"
    names.write_text("\n".join(name for name in usual_seconds if name), encoding="utf-8")
    usual.write_text(json.dumps(usual_seconds), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "limit"]
    process = subprocess.Popen(
        [*command, "--hypothesis-seed=0", f"@{names}"],
        cwd=tree,
        env={**environment(tree), "USUAL_SECONDS": str(usual)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_limited,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    unignored_signals()


def judged(chosen: Sequence[Change], folder: Path, workers: int) -> Iterator[Verdict]:
    """Each with a line that says how many were noticed until then; what earlier runs judged comes first."""
    before = Judged(folder / "judged")
    known = [verdict for change in chosen if (verdict := before.verdict(change))]
    left = [change for change in chosen if not before.verdict(change)]
    noticed = 0
    for number, verdict in enumerate(itertools.chain(known, _judged_now(left, folder, workers)), 1):
        before.keep(verdict)
        noticed += verdict.how in NOTICED
        shown = f"{verdict.how:9} {verdict.seconds:5.0f} s  {verdict.change.key}"
        print(f"{noticed:4} of {number:4} noticed  {shown}", flush=True)
        yield verdict


def _judged_now(chosen: Sequence[Change], folder: Path, workers: int) -> Iterator[Verdict]:
    """A quick look at all of them first: it notices most, and what is known early can be mended early."""
    if not chosen:
        return
    with tempfile.TemporaryDirectory(dir=folder) as copies, concurrent.futures.ThreadPoolExecutor(workers) as pool:
        trees = Trees(Path(copies))
        tests = record(folder / "recorded", pool, trees.mine, environment)
        left = []
        for verdict in pool.map(lambda each: judge(each, tests.quick_look(each), trees.mine()), chosen):
            if verdict.how in NOTICED:
                yield verdict
            else:
                left.append(verdict.change)
        yield from pool.map(lambda each: judge(each, tests.closer_look(each), trees.mine()), left)


def report(verdicts: Sequence[Verdict], known: dict[str, str], seed: int) -> Iterator[str]:
    count = Counter(verdict.how for verdict in verdicts)
    noticed, left = count["killed"] + count["hung"], [row for row in verdicts if row.how not in NOTICED]
    explained = [row for row in left if row.change.key in known]
    yield f"{len(verdicts)} mutants drawn with seed {seed}, {sum(row.seconds for row in verdicts):,.0f} s of processor"
    yield f"{noticed / len(verdicts):.0%} noticed by fast tests ({count['killed']} fail, {count['hung']} hang)"
    yield f"{noticed / max(len(verdicts) - len(explained), 1):.0%} without {len(explained)} that change nothing"
    yield f"{count['golden']} noticed by golden files or docs alone, {count['survived']} by nobody"
    for room in sorted({_room(row.change) for row in verdicts}):
        own = [row for row in verdicts if _room(row.change) == room]
        good = sum(row.how in NOTICED for row in own)
        yield f"  {room:14} {good:4} of {len(own):4}  {good / len(own):.0%}"
    for row in sorted(left, key=lambda row: (row.change.file, row.change.line)):
        change, what = row.change, row.change.key.split(" ", 1)[1]
        yield f"{row.how}: {change.file}:{change.line} {what} — {known.get(change.key, 'no reason known')}"


def _room(change: Change) -> str:
    return change.file.split("/")[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="mutants whose name has this text")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "scav-mutants")
    asked = parser.parse_args()
    chosen = drawn(asked.count, asked.seed, asked.only)
    verdicts = list(judged(chosen, asked.folder, asked.workers))
    known = reasons(SURVIVORS.read_text(encoding="utf-8")) if SURVIVORS.exists() else {}
    print("\n".join(report(verdicts, known, asked.seed)))


if __name__ == "__main__":
    main()
