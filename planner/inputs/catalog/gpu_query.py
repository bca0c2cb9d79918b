"""Which GPUs somebody means by `A100:80GB:1..8`: the grammar of dstack's `gpu` property.

A query is up to three parts in any order, separated by colons: names (`A100` or `L4,L40S`),
memory (`80GB`, `24GB..`, `..40GB`, `16GB..48GB`) and GPUs per node (`8`, `1..8`, `2..`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from planner.errors import InputError, one_line

if TYPE_CHECKING:
    from planner.inputs.catalog.tables import Gpu, InstanceType

Part = TypeVar("Part")

# The same card is sold as 180 and as 192 GB; no two cards of one model are nearer to each other than this.
SIZE_TOLERANCE = 0.07

_RANGE = re.compile(
    r"(?P<low>\d{1,6})?(?P<low_unit>GB)?(?P<dots>\.\.)?(?P<high>\d{1,6})?(?P<high_unit>GB)?", re.I | re.A
)
_NAME = re.compile(r"[a-z][a-z0-9 _-]*", re.I | re.A)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Whole numbers from low to high, both included; None is open."""

    low: int | None = None
    high: int | None = None

    def __contains__(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuery:
    """What the GPUs of a node must be; an absent part allows everything."""

    names: tuple[str, ...] = ()
    memory_gb: NumberRange = NumberRange()
    count: NumberRange = NumberRange()

    def matches(self, instance_type: InstanceType, gpu: Gpu) -> bool:
        return self.matches_name(gpu) and self._matches_memory(gpu) and instance_type.gpu_count in self.count

    def matches_name(self, gpu: Gpu) -> bool:
        known = {comparable(gpu.name), comparable(gpu.model)}
        return not self.names or any(comparable(name) in known for name in self.names)

    def _matches_memory(self, gpu: Gpu) -> bool:
        low, high = self.memory_gb.low, self.memory_gb.high
        if low is not None and low == high:
            return abs(gpu.nominal_memory_gb - low) <= SIZE_TOLERANCE * low
        return gpu.nominal_memory_gb in self.memory_gb


def comparable(name: str) -> str:
    """Names as people type them: `rtx pro 6000` is `RTX-PRO-6000`."""
    return re.sub(r"[ _-]", "", name).lower()


def parse_gpu_query(text: str) -> GpuQuery:
    """The query in `text`, whether or not any GPU answers to it."""
    names: tuple[str, ...] | None = None
    memory: NumberRange | None = None
    count: NumberRange | None = None
    for token in (part.strip() for part in text.split(":")):
        numbers = _RANGE.fullmatch(token)
        if not token:
            raise _error(text, "a part is empty")
        if numbers is None:
            names = _once(text, "names", names, _names(text, token))
        elif numbers["low_unit"] or numbers["high_unit"]:
            memory = _once(text, "memory", memory, _interval(text, token, numbers))
        else:
            count = _once(text, "count", count, _interval(text, token, numbers))
    return GpuQuery(names=names or (), memory_gb=memory or NumberRange(), count=count or NumberRange())


def _once(text: str, label: str, earlier: Part | None, part: Part) -> Part:
    if earlier is not None:
        raise _error(text, f"two parts give the {label}")
    return part


def _names(text: str, token: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in token.split(","))
    for name in names:
        if not _NAME.fullmatch(name):
            raise _error(text, f"{one_line(name)!r} is not a GPU name, a memory size in GB or a count")
    return names


def _interval(text: str, token: str, numbers: re.Match[str]) -> NumberRange:
    low = None if numbers["low"] is None else int(numbers["low"])
    high = None if numbers["high"] is None else int(numbers["high"])
    misplaced_unit = (numbers["low_unit"] and low is None) or (numbers["high_unit"] and high is None)
    if (low is None and high is None) or misplaced_unit:
        raise _error(text, f"{token!r} has no number")
    if not numbers["dots"]:
        if low is None or high is not None:
            raise _error(text, f"{token!r} is neither a number nor a range such as 2..8")
        high = low
    if low == 0 or high == 0:
        raise _error(text, f"{token!r} starts below 1")
    if low is not None and high is not None and low > high:
        raise _error(text, f"the range {token!r} is empty")
    return NumberRange(low, high)


def _error(text: str, reason: str) -> InputError:
    return InputError(f"GPU query {one_line(text, 80)!r}: {reason}; write it as A100:80GB:1..8")
