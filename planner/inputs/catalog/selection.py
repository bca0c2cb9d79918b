"""Which instance types a list of patterns means: `g5.*`, `p4d.24xlarge`, `A100:80GB`, `24GB..:8`."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import InputError, did_you_mean, one_line
from planner.inputs.catalog.gpu_query import GpuQuery, parse_gpu_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType

_LONGEST = 200  # characters; each wildcard makes the search longer


@dataclass(frozen=True, slots=True)
class TypeGlob:
    """Instance types by name, with the wildcards of a shell."""

    text: str

    def matches(self, instance_type: InstanceType, gpu: Gpu) -> bool:  # noqa: ARG002 (the same call as GpuQuery.matches)
        return fnmatchcase(instance_type.name, self.text.lower())


def parse_pattern(text: str) -> TypeGlob | GpuQuery:
    """Instance type names have a single dot or a wildcard; GPU queries have neither."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(f"{one_line(text, 80)!r} is too long to mean an instance type")
    is_glob = "." in text.replace("..", "") or any(wildcard in text for wildcard in "*?[")
    return TypeGlob(text) if is_glob else parse_gpu_query(text)


def select_instance_types(catalog: Catalog, patterns: Sequence[str]) -> tuple[InstanceType, ...]:
    """The types that any of the patterns means, in the catalogue's order; without patterns, all of them."""
    if not patterns:
        return catalog.instance_types
    chosen: set[str] = set()
    for text in patterns:
        pattern = parse_pattern(text)
        names = {
            instance_type.name
            for instance_type in catalog.instance_types
            if pattern.matches(instance_type, catalog.gpu_of(instance_type))
        }
        if not names:
            raise InputError(f"no instance type matches {one_line(text, 80)!r}{_hint(catalog, text, pattern)}")
        chosen |= names
    return tuple(instance_type for instance_type in catalog.instance_types if instance_type.name in chosen)


def named_instance_type(catalog: Catalog, name: str) -> InstanceType:
    instance_type = catalog.instance_type_by_name.get(name)
    if instance_type is None:
        known = catalog.instance_type_by_name
        raise InputError(f"unknown instance type {one_line(name, 80)!r}{did_you_mean(name, known)}")
    return instance_type


def _hint(catalog: Catalog, text: str, pattern: TypeGlob | GpuQuery) -> str:
    if isinstance(pattern, TypeGlob):
        return did_you_mean(text, (*catalog.instance_type_by_name, *_family_globs(catalog)))
    there = [
        instance_type for instance_type in catalog.instance_types if pattern.matches_name(catalog.gpu_of(instance_type))
    ]
    if there:
        counts = {f"{instance_type.gpu_count}x {instance_type.gpu}" for instance_type in there}
        return f"; there is {', '.join(sorted(counts)[:8])}" if pattern.names else ""
    known = {name for gpu in catalog.gpus for name in (gpu.name, gpu.model)}
    return did_you_mean(pattern.names[0], (*sorted(known), *_family_globs(catalog)))


def _family_globs(catalog: Catalog) -> list[str]:
    return list(dict.fromkeys(f"{instance_type.family}.*" for instance_type in catalog.instance_types))
