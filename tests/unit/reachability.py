"""Which definitions of a package no command reaches, found by following names through its source.

A function, class, constant, method or property is a definition. Starting from what is run, everything that a reachable
definition names is reachable, with these exceptions. An import or an export alone reaches nothing. A class that only
stands in signatures is not reached: nobody makes its objects. A method is reached when its class is and its name is
used as an attribute: of `self`, of a class that is named, or of anything whose class the source does not tell. Fields,
dunder methods, validators and methods of a class with a base from outside belong to their class.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Decorators that hand a method to pydantic.
VALIDATORS = {"field_validator", "model_validator", "field_serializer", "model_serializer"}
# Bases from outside that never call a method of their own accord.
PLAIN_BASES = {"BaseModel", "Exception", "Generic", "NamedTuple", "Protocol"}
STATEMENTS = "<statements>"  # of a module: what runs when it is imported
Place = tuple[str, str]  # module and name; `Class.method` for what is inside a class


class Unreachable(NamedTuple):
    """A definition with its decorators, or a whole module of which nothing is reachable."""

    module: str
    name: str
    line: int
    lines: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.name} ({self.lines} lines)"


@dataclass(frozen=True, slots=True)
class Definition:
    line: int
    lines: int
    names: frozenset[str] = frozenset()  # that it uses, for its module to resolve
    types: frozenset[str] = frozenset()  # that stand in its signatures only
    attributes: frozenset[tuple[str, str]] = frozenset()  # what stands before the dot, if a plain name, and after it
    makes_objects: bool = False  # a class, other than one that only describes objects of others
    with_class: bool = False  # a member that lives as long as its class does


@dataclass(slots=True)
class Module:
    lines: int
    definitions: dict[str, Definition] = field(default_factory=dict)
    imported: dict[str, Place] = field(default_factory=dict)  # local name -> module and name, "" for the module itself
    bases: dict[str, set[str]] = field(default_factory=dict)  # of each class, as written
    registered: dict[str, set[str]] = field(default_factory=dict)  # `@group.command()`: group -> functions


def unreachable(sources: Mapping[str, str], run: Iterable[Place]) -> list[Unreachable]:
    """`sources`: dotted module name -> text. `run`: what is called from outside; STATEMENTS for `python -m`."""
    modules = {name: _module(text) for name, text in sources.items()}
    live = _Search(modules).run(run)
    return [found for name, module in sorted(modules.items()) for found in _dead(name, module, live)]


def _dead(name: str, module: Module, live: set[Place]) -> Iterator[Unreachable]:
    own = [key for key in module.definitions if key != STATEMENTS]
    dead = [key for key in own if (name, key) not in live]
    if own and len(dead) == len(own):
        yield Unreachable(name, "everything", 1, module.lines)
        return
    for key in dead:
        owner, _, member = key.partition(".")
        if not member or (name, owner) in live:  # else its class is in the list
            yield Unreachable(name, key, module.definitions[key].line, module.definitions[key].lines)


class _Search:
    """Follows names from what is run; `live` is what it has reached."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self.modules = modules
        self.live: set[Place] = set()
        self.pending: list[Place] = []
        self.used: set[Place] = set()  # members whose name was used, though perhaps not yet their class
        self.members: dict[str, set[Place]] = {}  # name of a method -> where there is one
        for name, module in modules.items():
            for key in module.definitions:
                if "." in key:
                    self.members.setdefault(key.partition(".")[2], set()).add((name, key))
        self.families = self._families()

    def run(self, roots: Iterable[Place]) -> set[Place]:
        for module, name in roots:
            self.reach(module, name)
        while self.pending:
            self.follow(*self.pending.pop())
        return self.live

    def reach(self, module: str, name: str, *, as_type: bool = False) -> None:
        """A name as seen in a module: its own, or imported from wherever it was defined."""
        place = self.origin(module, name)
        if place is None or place in self.live:
            return
        if as_type and self.modules[place[0]].definitions[place[1]].makes_objects:
            return
        self.live.add(place)
        self.pending.append(place)
        self.reach(place[0], STATEMENTS)

    def origin(self, module: str, name: str) -> Place | None:
        """Through as many re-exports as there are; None for what comes from outside."""
        while module in self.modules:
            if name in self.modules[module].definitions:
                return module, name
            module, name = self.modules[module].imported.get(name, ("", ""))
        return None

    def follow(self, module: str, name: str) -> None:
        here = self.modules[module]
        definition = here.definitions[name]
        for used in definition.names:
            self.reach(module, used)
        for used in definition.types:
            self.reach(module, used, as_type=True)
        for before, attribute in definition.attributes:
            self.attribute(module, name, before, attribute)
        for function in here.registered.get(name, ()):
            self.reach(module, function)
        called_back = any(not self.origin(module, base) for base in here.bases.get(name, set()) - PLAIN_BASES)
        for key, member in here.definitions.items():
            if key.startswith(f"{name}.") and (called_back or member.with_class or (module, key) in self.used):
                self.reach(module, key)

    def attribute(self, module: str, name: str, before: str, attribute: str) -> None:
        """Of a module: that definition. Of a class or self: that family's member. Else any member of that name."""
        target = ".".join(filter(None, self.modules[module].imported.get(before, ())))
        if target in self.modules:
            self.reach(target, attribute)
            return
        found = self.members.get(attribute, set())
        owner = (module, name.partition(".")[0]) if before == "self" and "." in name else self.origin(module, before)
        if owner in self.families:
            found = {place for place in found if _class_of(place) in self.families[owner]}
        elif target and owner is None:
            return  # of a module from outside, such as numpy's functions
        for place in found:
            self.used.add(place)
            if _class_of(place) in self.live:
                self.reach(*place)

    def _families(self) -> dict[Place, set[Place]]:
        """Each class with those above and below it, whose methods a call may mean."""
        families: dict[Place, set[Place]] = {}
        for name, module in self.modules.items():
            for key, bases in module.bases.items():
                above = {place for base in bases if (place := self.origin(name, base)) is not None}
                joined = set().union({(name, key)}, above, *(families.get(place, set()) for place in above))
                for place in joined:
                    families[place] = joined
        return families


def _class_of(member: Place) -> Place:
    return member[0], member[1].partition(".")[0]


def _module(text: str) -> Module:
    tree = ast.parse(text)
    module = Module(lines=len(text.splitlines()))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module.imported |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            module.imported |= {alias.asname or alias.name: (alias.name, "") for alias in node.names}
    statements = [node for node in tree.body if not _noted(module, node)]
    module.definitions[STATEMENTS] = _definition(statements)
    return module


def _noted(module: Module, node: ast.stmt) -> bool:
    """Whether the statement only defines something, which is noted, or does nothing."""
    if isinstance(node, ast.ClassDef):
        _note_class(module, node)
        return True
    if isinstance(node, FUNCTIONS):
        module.definitions[node.name] = _definition([node])
        for decorator in node.decorator_list:
            for name in _plain_names(decorator):
                module.registered.setdefault(name, set()).add(node.name)
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for each in targets for target in ast.walk(each) if isinstance(target, ast.Name)]
        module.definitions |= {name: _definition([node]) for name in names if name != "__all__"}
        return True
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)


def _note_class(module: Module, node: ast.ClassDef) -> None:
    bases = module.bases[node.name] = {ast.unparse(base).partition("[")[0] for base in node.bases}
    methods = [part for part in node.body if isinstance(part, FUNCTIONS)]
    fields = [part for part in node.body if part not in methods]
    whole = _definition([ast.ClassDef(**{**vars(node), "body": fields or [ast.Pass()]})])
    # Pydantic and NamedTuple make the objects that stand in fields, so there a type is a use.
    module.definitions[node.name] = replace(
        whole, names=whole.names | whole.types, types=frozenset(), makes_objects="Protocol" not in bases
    )
    for method in methods:
        decorators = {name for decorator in method.decorator_list for name in _plain_names(decorator)}
        with_class = method.name.startswith("__") or bool(decorators & VALIDATORS)
        module.definitions[f"{node.name}.{method.name}"] = replace(_definition([method]), with_class=with_class)


def _plain_names(node: ast.AST) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def _definition(nodes: Sequence[ast.stmt]) -> Definition:
    if not nodes:
        return Definition(0, 0)
    first = min(part.lineno for node in nodes for part in (node, *getattr(node, "decorator_list", ())))
    last = max(node.end_lineno or first for node in nodes)
    plain = [_Unannotated().visit(ast.parse(ast.unparse(node))) for node in nodes]
    attributes = {
        (part.value.id if isinstance(part.value, ast.Name) else "", part.attr)
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)
    }
    names = frozenset(
        name for node in plain for name in _from_outside(symtable.symtable(ast.unparse(node), "", "exec"))
    )
    types = {name for node in nodes for part in ast.walk(node) for name in _annotated(part)} - names
    return Definition(first, last - first + 1, names, frozenset(types), frozenset(attributes))


class _Unannotated(ast.NodeTransformer):
    """The same code without the types in its signatures."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _annotated(node: ast.AST) -> list[str]:
    parts = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return [name for part in parts if part is not None for name in _plain_names(part)]


def _from_outside(table: symtable.SymbolTable) -> Iterator[str]:
    """What a scope and those inside it take from outside; a local of the same name as a definition is not a use."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_imported() or (symbol.is_referenced() and (top or symbol.is_global())):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _from_outside(inner)
