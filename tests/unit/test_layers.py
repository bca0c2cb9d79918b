"""The import direction of docs/architecture.md: a pure core in one order, a shell around it, and instant help."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.cli import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted((REPOSITORY / "planner").rglob("*.py"))

# Each imports only those left of it, and itself.
CORE = (
    *("errors", "contract", "units", "catalog", "job", "measurements", "probe_plan"),
    *("models", "next_probe", "simulation", "candidates", "spot_mix", "pricing", "search", "deepvm_choice"),
    "evaluation",
    *("plan", "probe_clusters", "forecast", "fit_report", "review", "check"),
)
SHELL = (
    *("module_variables", "render", "assets", "store", "aws", "terraform", "embedded_terraform", "adopt"),
    *("runners", "doctor", "cli"),
)
IMPURE_MODULES = {
    *("os", "pathlib", "time", "random", "socket", "subprocess", "shutil", "tempfile", "io", "sys", "secrets", "uuid"),
    *("boto3", "botocore", "requests", "urllib", "http", "threading", "multiprocessing", "logging", "locale"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
IMPURE_METHODS = {"now", "utcnow", "today", "read_text", "write_text", "read_bytes", "write_bytes", "fromtimestamp"}
MOST_LINES = 400


def layer_of(path: Path) -> str:
    """`planner/models/memory.py` belongs to models; the package's own files belong to none."""
    return path.relative_to(REPOSITORY / "planner").with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module with its line; `from planner import units` counts as planner.units."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            whole = node.module == "planner"
            yield from ((f"planner.{a.name}" if whole else str(node.module), node.lineno) for a in node.names)


def imported_layers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for module, line in imports(tree):
        if module.startswith("planner.") and module != "planner.__version__":
            yield module.split(".")[1], line


def impurities(tree: ast.AST) -> Iterator[str]:
    for module, line in imports(tree):
        if module.partition(".")[0] in IMPURE_MODULES:
            yield f"line {line} imports {module}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
            yield f"line {node.lineno} calls {called.id}()"
        if isinstance(called, ast.Attribute) and called.attr in IMPURE_METHODS:
            yield f"line {node.lineno} calls .{called.attr}()"


def imports_at_top(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What importing the module imports: neither the bodies of functions nor `if TYPE_CHECKING`."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def core_files() -> list[Path]:
    return [path for path in SOURCES if layer_of(path) in CORE]


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(REPOSITORY).as_posix() for path in paths]


def test_every_module_has_a_layer():
    unknown = {layer_of(path) for path in SOURCES} - {*CORE, *SHELL, "__init__", "__main__"}
    assert not unknown, f"say in CORE or SHELL where {', '.join(sorted(unknown))} stands"


@pytest.mark.parametrize("path", core_files(), ids=names(core_files()))
def test_core_imports_only_what_stands_left_of_it(path):
    allowed = CORE[: CORE.index(layer_of(path)) + 1]
    wrong = [f"line {line} imports {layer}" for layer, line in imported_layers(parsed(path)) if layer not in allowed]
    assert not wrong


@pytest.mark.parametrize("path", core_files(), ids=names(core_files()))
def test_core_has_no_clock_network_environment_or_files(path):
    assert list(impurities(parsed(path))) == []


def test_only_the_command_line_imports_the_command_line():
    others = [path for path in SOURCES if layer_of(path) not in {"cli", "__main__"}]
    assert [path for path in others if "cli" in {layer for layer, _ in imported_layers(parsed(path))}] == []


def test_probes_never_import_the_planner():
    for path in (REPOSITORY / "probes").rglob("*.py"):
        assert not [module for module, _ in imports(parsed(path)) if module.partition(".")[0] == "planner"], path


def command_modules() -> list[Path]:
    """What `scav --help` imports: a module per command, and what these import at their top from beside them."""
    pending, found = ["planner.cli", *(f"planner.cli.{name}" for name in COMMANDS)], set()
    while pending:
        place = REPOSITORY.joinpath(*pending.pop().split("."))
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if path not in found:
            found.add(path)
            pending += [module for module, _ in imports_at_top(parsed(path)) if module.startswith("planner.cli")]
    return sorted(found)


@pytest.mark.parametrize("path", command_modules(), ids=names(command_modules()))
def test_commands_import_only_click_at_their_top_so_that_help_is_instant(path):
    light = {"click", "planner.errors", "planner.__version__"}
    heavy = [
        f"line {line} imports {module}"
        for module, line in imports_at_top(parsed(path))
        if module not in light
        and module.partition(".")[0] not in sys.stdlib_module_names
        and not module.startswith("planner.cli")
    ]
    assert not heavy


@pytest.mark.parametrize("folder", ["planner", "probes", "tests", "benchmarks"])
def test_no_file_outgrows_one_idea(folder):
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (REPOSITORY / folder).rglob("*.py")}
    assert {path.name: size for path, size in sizes.items() if size > MOST_LINES} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from planner import store", "store"),
        ("import planner.store", "store"),
        ("def f():\n    from planner.store import load_text", "store"),
    ],
)
def test_an_import_in_any_disguise_is_seen(source, found):
    assert [layer for layer, _ in imported_layers(ast.parse(source))] == [found]


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from pathlib import Path",
        "open('x')",
        "datetime.date.today()",
        "import urllib.request",
        "print(1)",
    ],
)
def test_what_the_core_must_not_do_is_seen(source):
    assert list(impurities(ast.parse(source)))


def test_type_checking_blocks_and_functions_are_not_imported_with_the_module():
    source = "if TYPE_CHECKING:\n    import numpy\nelse:\n    import scipy\ndef f():\n    import yaml\nimport click\n"
    assert {module for module, _ in imports_at_top(ast.parse(source))} == {"click", "scipy"}
