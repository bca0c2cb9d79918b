"""A pytest plugin: which lines of planner/ each test runs, and how many seconds of processor it takes.

What a test file does on import, and in fixtures for more than one test, counts for all of its tests, under no name.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

SHARED = ""


class Recorder:
    def __init__(self, result: Path) -> None:
        self.result = result
        self.coverage = Coverage(source=["planner"], data_file=None, config_file=False)
        self.coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
        self.coverage.start()
        self.coverage.switch_context(SHARED)
        self.seconds: dict[str, float] = {SHARED: 0.0}
        self.failed: set[str] = set()
        self.started = time.process_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _forget()
        self.seconds[SHARED] = self.seconds[SHARED] or time.process_time() - self.started
        before = time.process_time()
        self.coverage.switch_context(item.nodeid)
        result = yield
        self.coverage.switch_context(SHARED)
        self.seconds[item.nodeid] = time.process_time() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        shared = fixturedef.scope != "function"
        if shared:
            self.coverage.switch_context(SHARED)
        result = yield
        if shared:
            self.coverage.switch_context(os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0])
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data, root = self.coverage.get_data(), Path.cwd()
        lines: dict[str, dict[str, list[int]]] = {test: {} for test in self.seconds}
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    lines.setdefault(test, {}).setdefault(str(Path(file).relative_to(root)), []).append(line)
        found = {"seconds": self.seconds, "failed": sorted(self.failed), "lines": lines}
        self.result.write_text(json.dumps(found), encoding="utf-8")


def _forget() -> None:
    """What an earlier test left in a cache would hide that this test needs it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("planner."):
            for found in vars(module).values():
                if isinstance(found, functools._lru_cache_wrapper):
                    found.cache_clear()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(Path(os.environ["RECORD_TO"])))
