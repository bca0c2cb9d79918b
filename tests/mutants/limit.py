"""A pytest plugin: a test that takes ten times its usual seconds of processor hangs, and ends all with SIGPROF.

Seconds of processor, so that a busy machine makes nobody look hung.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

TIMES, AND_SECONDS = 10, 10.0  # a test of a millisecond may take some seconds when it draws other examples
USUAL: dict[str, float] = json.loads(Path(os.environ["USUAL_SECONDS"]).read_text(encoding="utf-8"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, TIMES * USUAL.get(item.nodeid, 0.0) + AND_SECONDS)
    result = yield
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return result


def pytest_configure() -> None:
    signal.setitimer(signal.ITIMER_PROF, TIMES * USUAL[""] + AND_SECONDS)  # importing all files


def pytest_collection_finish() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.0)
