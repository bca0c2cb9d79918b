"""How far two figures are apart, in words: from the digits that are shown, so that a reader finds the same."""

from __future__ import annotations

from planner.units import format_usd


def hours_cell(hours: float) -> str:
    """Without a unit, which the heading names."""
    return f"{hours:.2f}" if hours < 1 else f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def shown_number(text: str) -> float:
    """`$1,302` as 1302."""
    return float(text.strip("$ h").replace(",", ""))


def dearer(usd: float, than_usd: float) -> str:
    """`16 % dearer`, `1.6x dearer`, `38 % cheaper`; nothing where both show the same."""
    return ratio_text(shown_number(format_usd(usd)), shown_number(format_usd(than_usd)), "dearer", "cheaper")


def slower(hours: float, than_hours: float) -> str:
    return ratio_text(shown_number(hours_cell(hours)), shown_number(hours_cell(than_hours)), "slower", "faster")


def change_text(before: float, after: float) -> str:
    """`+16 %`; from twice as much on `2.0x`."""
    if not before or not after or before == after:
        return ""
    factor = after / before
    if factor >= 2:
        return f"{factor:.1f}x"
    percent = f"{abs(factor - 1) * 100:.0f}"
    return f"{'+' if factor > 1 else '-'}{percent} %" if percent != "0" else "<1 %"


def ratio_text(value: float, other: float, more: str, less: str) -> str:
    """In percent of the other; from one and a half on by factors: 2.0x faster, not 50 %. Money is saved in percent."""
    if not value or not other:
        return ""
    word, factor = (more, value / other) if value > other else (less, other / value)
    percent = f"{abs(value / other - 1) * 100:.0f}"
    if factor >= 1.5 and word != "cheaper":
        return f"{factor:.1f}x {word}"
    return f"{percent} % {word}" if percent != "0" else ""
