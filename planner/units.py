"""Human units in, plain numbers out, and back: `24h`, `$400`, `115M`, `98 MiB`, `24.6 GFLOP`, `1..16`.

Parsers raise ValueError with a sentence that says what to write instead.
"""

from __future__ import annotations

import math
import re

_NUMBER = r"(-?\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?|-?\.\d+)"
_QUANTITY = re.compile(rf"\s*{_NUMBER}\s*([A-Za-z]*)\s*", re.ASCII)
_DURATION_PART = re.compile(rf"\s*{_NUMBER}\s*([A-Za-z]+)\s*", re.ASCII)
_MONEY = re.compile(rf"\s*(?:\$\s*{_NUMBER}|{_NUMBER}\s*(?:USD|usd)?)\s*", re.ASCII)
_DASHED_RANGE = re.compile(r"\s*(\d{1,12})\s*(?:-|–|:|to)\s*(\d{1,12})\s*", re.ASCII)
_RANGE = re.compile(r"\s*(\S*?)\s*\.\.\s*(\S*?)\s*", re.ASCII)

_SMALLEST, _LARGEST = 1e-9, 1e30  # far outside any real quantity, far inside what overflows when two are multiplied
_LONGEST = 100  # characters; on a megabyte of blanks the patterns above would take hours

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_HOURS = {"s": 1 / 3600, "sec": 1 / 3600, "m": 1 / 60, "min": 1 / 60, "h": 1.0, "hour": 1.0, "hours": 1.0}
_HOURS |= {"d": 24.0, "day": 24.0, "days": 24.0, "w": 168.0}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_BYTES = {"": 1.0, "B": 1.0}
_BYTES |= {f"{prefix}B": 1000.0**power for power, prefix in enumerate("kMGTP", start=1)} | {"KB": 1e3}
_BYTES |= {f"{prefix}iB": 1024.0**power for power, prefix in enumerate("KMGTP", start=1)}
_FLOP = {f"{prefix}{unit}": factor for prefix, factor in _DECIMAL.items() for unit in ("", "FLOP", "FLOPs")}


def parse_hours(value: object) -> float:
    """`24h`, `1d12h`, `90 min`; a bare number is refused because its unit would be a guess."""
    text = _text(value)
    position, total = 0, 0.0
    while part := _DURATION_PART.match(text, position):
        if part[2] not in _HOURS:
            break
        total += _number(part[1]) * _HOURS[part[2]]
        position = part.end()
    if position == 0 or position != len(text):
        raise ValueError(f"{_shown(value)} is not a duration; write 24h, 90min or 1d12h")
    return _positive(total, value)


def parse_seconds(value: object) -> float:
    """Of keys that name their unit: `0.0085`, `8.5ms`."""
    return _quantity(value, _SECONDS, "a number of seconds", "0.0085 or 8.5ms")


def parse_usd(value: object) -> float:
    match = _MONEY.fullmatch(_text(value))
    if match is None:
        raise ValueError(f"{_shown(value)} is not an amount of dollars; write $400")
    return _positive(_number(match[1] or match[2]), value)


def parse_count(value: object) -> int:
    """A whole number of things: `1_281_167`, `115M`, `1.2e6`."""
    number = _quantity(value, _DECIMAL, "a count", "1281167 or 115M")
    if number != int(number):
        raise ValueError(f"{_shown(value)} is not a whole number")
    return int(number)


def parse_samples(value: object) -> float:
    return _quantity(value, _DECIMAL, "a number of samples", "115M")


def parse_bytes(value: object) -> float:
    return _quantity(value, _BYTES, "a size", "98MiB, 102MB or a number of bytes")


def parse_bytes_or_zero(value: object) -> float:
    return 0.0 if _text(value).strip() in {"0", "0.0"} else parse_bytes(value)


def parse_flop(value: object) -> float:
    return _quantity(value, _FLOP, "a number of floating point operations", "24.6 GFLOP or 2.46e10")


def parse_count_range(value: object) -> tuple[int, int]:
    """`1..16`, or `8` for exactly eight."""
    if dashed := _DASHED_RANGE.fullmatch(_text(value)):
        raise ValueError(f"{_shown(value)} is not a range; write {dashed[1]}..{dashed[2]}")
    match = _RANGE.fullmatch(_text(value))
    first, last = (match[1], match[2]) if match else (value, value)
    if first == "" or last == "":
        raise ValueError(f"{_shown(value)} is open at one end; write 1..16")
    low, high = parse_count(first), parse_count(last)
    if low > high:
        raise ValueError(f"{_shown(value)} has its minimum above its maximum; write {high}..{low}")
    return low, high


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def format_usd(usd: float) -> str:
    """Dollars to the precision that people compare by: cents below $100."""
    return f"${usd:,.2f}" if usd < 100 else f"${usd:,.0f}"


def format_hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f}".removesuffix(".0") + " h" if hours < 100 else f"{hours:,.0f} h"


def format_count(count: float) -> str:
    """Three significant digits and a unit: 115 M."""
    for factor, suffix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if count >= factor:
            value = count / (1e3 if suffix == " k" else factor)
            return f"{value:.3g}{suffix}" if value < 999.5 else f"{value:,.0f}{suffix}"
    return f"{count:,.0f}"


def written_bytes(size: float) -> str:
    """As a job file says it: 1.138GB."""
    return _written(size, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "B")


def written_flop(count: float) -> str:
    """As a job file says it: 24.6 GFLOP."""
    return _written(count, ((" PFLOP", 1e15), (" TFLOP", 1e12), (" GFLOP", 1e9), (" MFLOP", 1e6)), " FLOP")


def _written(value: float, units: tuple[tuple[str, float], ...], smallest: str) -> str:
    """To four digits, which is more than anybody knows of it."""
    unit, factor = next(((unit, factor) for unit, factor in units if value >= factor), (smallest, 1.0))
    return f"{float(f'{value / factor:.4g}'):g}{unit}"


def format_percent(share: float) -> str:
    percent = share * 100
    return "<1 %" if 0 < percent <= 0.5 else f"{percent:.0f} %"


def format_probability(probability: float) -> str:
    """Never shows a certainty that no prediction has."""
    return ">99 %" if probability >= 0.995 else format_percent(probability)


def _quantity(value: object, units: dict[str, float], noun: str, example: str) -> float:
    match = _QUANTITY.fullmatch(_text(value))
    if match is None or match[2] not in units:
        raise ValueError(f"{_shown(value)} is not {noun}; write {example}")
    return _positive(_number(match[1]) * units[match[2]], value)


def _text(value: object) -> str:
    """What a pattern may be held against: nothing of what cannot be a quantity."""
    text = str(value)
    return "" if isinstance(value, bool) or len(text) > _LONGEST else text


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _positive(number: float, value: object) -> float:
    if not math.isfinite(number) or number > _LARGEST:
        raise ValueError(f"{_shown(value)} is too large to be real")
    if number <= 0:
        raise ValueError(f"{_shown(value)} must be above zero")
    if number < _SMALLEST:
        raise ValueError(f"{_shown(value)} is too small to be real")
    return number


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:39] + "…")
