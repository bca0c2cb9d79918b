"""From the start of scav's provider to its handshake, beside importing grpc and scav alone, wall and processor time.

Prints a Markdown table of medians. Terraform starts a provider up to three times a command. What init, validate and
plan take with it and without it: `pytest -s tests/terraform/test_provider.py -k both_ways`, on a mock AWS.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from planner.provider.installation import install
from planner.provider.server import COOKIE

IMPORTS = [sys.executable, "-c", "import grpc, planner"]


class Times(NamedTuple):
    wall: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        launcher = [str(install(Path(folder)).executables[-1])]
        environment = os.environ | {COOKIE[0]: COOKIE[1], "TMPDIR": folder}
        used(launcher, environment)  # Python keeps what it compiles
        pairs = [(used(IMPORTS, environment), used(launcher, environment)) for _ in range(runs)]
    imports, handshake = (medians(each) for each in zip(*pairs, strict=True))
    print(f"| medians of {runs} runs | wall, ms | processor, ms |\n|---|--:|--:|")
    print(f"| `python -c 'import grpc, planner'` | {1000 * imports.wall:.0f} | {1000 * imports.processor:.0f} |")
    print(f"| start to handshake | {1000 * handshake.wall:.0f} | {1000 * handshake.processor:.0f} |")
    print(f"| ratio | {handshake.wall / imports.wall:.2f} | {handshake.processor / imports.processor:.2f} |")
    print(f"\nLoad average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.")


def used(command: list[str], environment: dict[str, str]) -> Times:
    """Until its first line, after which it is killed, or until it ends."""
    before, start = processor_seconds(), time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        wall = time.perf_counter() - start
        if line:
            process.kill()
    if not line.startswith(b"" if command == IMPORTS else b"1|6|unix|"):
        sys.exit(f"no handshake: {line.decode()}")
    return Times(wall, processor_seconds() - before)


def processor_seconds() -> float:
    """Of the processes that were waited for."""
    counted = resource.getrusage(resource.RUSAGE_CHILDREN)
    return counted.ru_utime + counted.ru_stime


def medians(times: tuple[Times, ...]) -> Times:
    return Times(*(statistics.median(each) for each in zip(*times, strict=True)))


if __name__ == "__main__":
    main()
