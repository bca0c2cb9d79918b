"""Every small change of a source text that a test should notice: the mutants that `run.py` draws from.

Two tools for this were tried first. mutmut changes no module constant and no property, where many of the numbers here
stand; cosmic-ray runs the same tests for every mutant. Neither draws a sample, and to both a slow machine is a kill.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_PAIRS = (("min", "max"), ("minimum", "maximum"), ("floor", "ceil"), ("argmin", "argmax"), ("any", "all"))
_OPPOSITE = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_NOT_CHANGED = {"annotation", "returns", "decorator_list", "type_comment", "ctx", "op", "ops"}


@dataclass(frozen=True)
class Change:
    """One mutant. `key` names it by what it changes, not by a line, so that edits elsewhere leave it as it is."""

    file: str
    function: str
    before: str
    after: str
    nth: int  # of changes alike within the function
    line: int
    normal_line: int  # where its statement stands in the text as `normal` writes it
    at_import: bool  # a constant, a default: read when the module is

    @property
    def key(self) -> str:
        again = f" ({self.nth + 1})" if self.nth else ""
        return f"{self.file} {self.function}: `{self.before}` -> `{self.after}`{again}"


def normal(source: str) -> str:
    """Without comments and line breaks: what an unchanged file is compared with."""
    return ast.unparse(ast.parse(source)) + "\n"


def changes(source: str, file: str) -> list[Change]:
    """All of a file, in its order."""
    return [change for change, _, _ in _each(ast.parse(normal(source)), ast.parse(source), file)]


def mutated(source: str, change: Change) -> str:
    """The whole file with one change."""
    tree = ast.parse(normal(source))
    place, new = next(rest for found, *rest in _each(tree, ast.parse(source), change.file) if found.key == change.key)
    place.put(new)
    return ast.unparse(tree) + "\n"


def _each(tree: ast.Module, shown: ast.Module, file: str) -> Iterator[tuple[Change, _Place, ast.AST]]:
    lines = {id(ours): theirs.lineno for ours, theirs in zip(_statements(tree), _statements(shown), strict=True)}
    seen: Counter[tuple[str, str, str]] = Counter()
    for place in list(_places(tree, "", None, at_import=True)):
        for new in _others(place):
            alike = (place.function, _text(place.node), _text(new))
            where = (lines[id(place.statement)], place.statement.lineno, place.at_import)
            yield Change(file, *alike, seen[alike], *where), place, new
            seen[alike] += 1


@dataclass(frozen=True)
class _Place:
    """A node, and where in its parent it hangs."""

    node: ast.AST
    parent: Any
    field: str
    index: int | None
    function: str
    statement: ast.stmt
    at_import: bool

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _places(parent: ast.AST, function: str, statement: ast.stmt | None, *, at_import: bool) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        if field in _NOT_CHANGED:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _is_fixed(node):
                continue
            own = node if isinstance(node, ast.stmt) else statement
            name = _name(node, at_import)
            inside = f"{function}.{name}" if function and name else function or name
            if own is not None:
                yield _Place(node, parent, field, index, inside or "module", own, at_import)
            runs_later = isinstance(node, ast.FunctionDef)
            yield from _places(node, inside, own, at_import=at_import and not runs_later)


def _name(node: ast.AST, at_import: bool) -> str:
    """What a function, a class or a constant is called."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if at_import:
            return name
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])]) if at_import:
            return name
    return ""


def _is_fixed(node: ast.AST) -> bool:
    """Imports, texts, and what only mypy sees; `strict=True` of a zip, which guards against bugs that are not there."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.keyword(arg="strict"):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


def _others(place: _Place) -> Iterator[ast.AST]:
    node = place.node
    yield from _other_statements(node) if isinstance(node, ast.stmt) else _other_expressions(node)
    if place.field in {"test", "ifs"} and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)


def _other_statements(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()


def _other_expressions(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator, *_]):
            for other in _COMPARED[type(operator)]:
                yield _with(node, ops=[other(), *node.ops[1:]])
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED:
            yield _with(node, op=_COMPUTED[type(operator)]())
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Call():
            yield from _other_calls(node)


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _OPPOSITE:
        changed = {"attr" if isinstance(node.func, ast.Attribute) else "id": _OPPOSITE[name]}
        yield _with(node, func=_with(node.func, **changed))
    if name[:1].islower() and name not in {"cls", "replace"}:  # a class without one of its fields only crashes
        for keyword in node.keywords:
            if keyword.arg not in {None, "strict"}:
                yield _with(node, keywords=[each for each in node.keywords if each is not keyword])


def _with(node: ast.AST, **changed: Any) -> ast.AST:
    new = copy.copy(node)
    for name, value in changed.items():
        setattr(new, name, value)
    return new


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _statements(tree: ast.AST) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
