"""Which fast tests can notice a change: those that run its line, by a recording that is kept until a file changes."""

from __future__ import annotations

import ast
import hashlib
import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, TypedDict

from changes import Change, normal

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("tests/unit", "tests/cli")
# They compare whole texts with stored ones: whoever renews these by habit notices nothing.
GOLDEN = ("tests/cli/test_docs.py", "tests/unit/test_job_docs.py", "test_decisions_read_as_reviewed")
FIRST_SECONDS, MOST_SECONDS = 4.0, 40.0


class Recording(TypedDict):
    """What `record.py` writes: under no name stands what all tests of the file share."""

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[str, list[int]]]


class Stage(NamedTuple):
    how: str  # what it is called when one of these tests fails
    usual_seconds: dict[str, float]  # of each test, and under no name of importing their files


class TestMap:
    """Tests by the lines they run, with their seconds of processor."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.seconds: dict[str, float] = {}
        self.by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.import_seconds: dict[str, float] = {}
        for found in recordings:
            own = [test for test in found["seconds"] if test and test not in found["failed"]]
            self.seconds |= {test: found["seconds"][test] for test in own}
            for test, files in found["lines"].items():
                for file, lines in files.items():
                    for line in lines:
                        self.by_line[file, line].update([test] if test else own)
            self.import_seconds |= {test.split("::")[0]: found["seconds"][""] for test in own}
        self.usual_seconds = min(self.import_seconds.values(), default=0.0)  # of importing what all of them need
        self.import_seconds = {file: each - self.usual_seconds for file, each in self.import_seconds.items()}
        self.module_lines = {file: _lines_of_functions(file) for file in {file for file, _ in self.by_line}}
        self.users = _users_of_names(self.module_lines)

    def quick_look(self, change: Change) -> list[Stage]:
        first, _, _ = self._looks(change)
        return self._stages(("killed", first))

    def closer_look(self, change: Change) -> list[Stage]:
        """For up to a minute; golden files only if nobody else has noticed."""
        _, later, golden = self._looks(change)
        return self._stages(("killed", later), ("golden", golden))

    def _looks(self, change: Change) -> tuple[list[str], list[str], list[str]]:
        tests = self._that_run(change)
        golden = {test for test in tests if any(name in test for name in GOLDEN)}
        return *self._quickest(tests - golden), sorted(golden)

    def _stages(self, *looks: tuple[str, list[str]]) -> list[Stage]:
        return [
            Stage(
                how, {"": self.usual_seconds + self._importing(names), **{name: self.seconds[name] for name in names}}
            )
            for how, names in looks
            if names
        ]

    def _that_run(self, change: Change) -> set[str]:
        lines = self._lines(change)
        return {test for line in lines for test in self.by_line.get(line, ()) if test in self.seconds}

    def _lines(self, change: Change) -> set[tuple[str, int]]:
        own = self.module_lines.get(change.file, {})
        if change.at_import:
            names = change.function.split(".")
            used = self.users.get(names[0], set()) | self.users.get(names[-1], set())
            return used or {(change.file, line) for lines in own.values() for line in lines}
        inside = own.get(change.function, set())
        if change.normal_line in inside or not inside:
            return {(change.file, change.normal_line)}
        return {(change.file, line) for line in inside}  # a default value

    def _quickest(self, tests: Iterable[str]) -> tuple[list[str], list[str]]:
        """Tests by file, since a file is imported before its first test runs."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            by_file[test.split("::")[0]].append(test)
        first: list[str] = []
        later: list[str] = []
        spent = 0.0
        for file, names in sorted(by_file.items(), key=lambda row: self._sum(row[1])):
            spent += self.import_seconds[file]
            for name in names:
                spent += self.seconds[name]
                if spent <= FIRST_SECONDS or not first:
                    first.append(name)
                elif spent <= MOST_SECONDS:
                    later.append(name)
        return first, later

    def _sum(self, tests: Sequence[str]) -> float:
        return sum(self.seconds[test] for test in tests) + self._importing(tests)

    def _importing(self, tests: Sequence[str]) -> float:
        return sum(self.import_seconds[file] for file in {test.split("::")[0] for test in tests})


def _lines_of_functions(file: str) -> dict[str, set[int]]:
    """Lines of the text as it is normally written, by function; a function's first line is its `def`'s."""
    found: dict[str, set[int]] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inside = f"{name}.{child.name}" if name else child.name
                if isinstance(child, ast.FunctionDef):
                    found[inside] = set(range(child.body[0].lineno, (child.end_lineno or 0) + 1))
                visit(child, inside)

    visit(ast.parse(normal((REPOSITORY / file).read_text(encoding="utf-8"))), "")
    return found


def _users_of_names(module_lines: dict[str, dict[str, set[int]]]) -> dict[str, set[tuple[str, int]]]:
    """Where functions use a module's constant or class, also through other constants."""
    users: dict[str, set[tuple[str, int]]] = defaultdict(set)
    derived: dict[str, set[str]] = defaultdict(set)
    for file, functions in module_lines.items():
        inside = {line for lines in functions.values() for line in lines}
        for statement in ast.parse(normal((REPOSITORY / file).read_text(encoding="utf-8"))).body:
            made = _made_by(statement)
            for name, line in _names_in(statement):
                if line in inside:
                    users[name].add((file, line))
                else:
                    derived[name] |= made - {name}
    for _ in range(4):  # constants of constants
        for name, others in derived.items():
            users[name] = users[name].union(*(users.get(other, set()) for other in others))
    return users


def _made_by(statement: ast.stmt) -> set[str]:
    """The names that a module gets from it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {node.id for node in stored}


def _names_in(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno


def record(
    folder: Path, pool: Executor, tree: Callable[[], Path], environment: Callable[[Path], dict[str, str]]
) -> TestMap:
    """Every fast test file alone, unless neither it nor anything it could use has changed since."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for name in FOLDERS for file in sorted((REPOSITORY / name).glob("test_*.py"))]
    sources = digest(sorted((REPOSITORY / "planner").rglob("*.py")))

    def recording(file: Path) -> Recording:
        result = folder / f"{file.stem}-{digest([file])[:12]}-{sources[:12]}.json"
        if not result.exists():
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "record"]
            command += ["-m", "not slow", "--hypothesis-seed=0", str(file.relative_to(REPOSITORY))]
            subprocess.run(
                command,
                cwd=tree(),
                env={**environment(tree()), "RECORD_TO": str(result)},
                capture_output=True,
                check=False,
                preexec_fn=unignored_signals,
            )
        found: Recording = json.loads(result.read_text(encoding="utf-8"))
        print(f"recorded {len(found['seconds']) - 1} tests of {file.name}", *_shown(found["failed"]), flush=True)
        return found

    return TestMap(list(pool.map(recording, files)))


def unignored_signals() -> None:
    """Whoever runs this in the background ignores some, and tests that send themselves one would wait for ever."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _shown(failed: Sequence[str]) -> list[str]:
    return [f"({len(failed)} skipped or failed: {', '.join(failed[:3])})"] if failed else []


def digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
