"""Whoever reads a plan can recompute it: every comparison in words follows from the figures that stand beside it."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from test_plan import MIXED, OTHER, PLAN, plan_example

from planner.plan.review.cost import review_cost
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, plan_page, review_page
from planner.plan.schema import Plan

PLANS = {
    "one node": PLAN,
    "mixed": MIXED,
    "gpt2": OTHER,
    "resnet": plan_example(),
    "tight": plan_example(deadline="1h"),
    "time": plan_example(objective="time", budget="$200"),
    "knee": plan_example(objective="knee"),
    "never": plan_example(spot="never", confidence=0.9),
}
COMPARISON = re.compile(r"([\d.]+)( %|x) (dearer|cheaper|slower|faster)")
ROW = re.compile(r"^\d +(\d+ x \S+) +\d+ +[\d,]+ +([\d.,]+) +([\d.,]+) +\$([\d.,]+) +\$([\d.,]+)(?:  (.*))?$")
MARKDOWN_ROW = re.compile(
    r"^\| (\d+ x \S+) \| \d+ \| [\d,]+ \| ([\d.,]+) \| ([\d.,]+) \| \$([\d.,]+) \| \$([\d.,]+) \| (.*) \|$"
)
ANY_USD = r"\$([\d,]+(?:\.\d+)?)"


def number(text: str) -> float:
    return float(text.replace(",", ""))


def agrees(words: tuple[str, str, str], value: float, other: float) -> bool:
    """`16 % dearer`, of what is shown for the row and for the choice."""
    amount, unit, word = words
    assert (value > other) == (word in {"dearer", "slower"})
    if unit == "x":
        return f"{max(value / other, other / value):.1f}" == amount
    return f"{abs(value / other - 1) * 100:.0f}" == amount


def rows_of(text: str, pattern: re.Pattern[str]) -> list[tuple[float, float, str]]:
    """Hours and dollars that are compared, and what is said of them, of each row of the table."""
    found = [match for line in text.splitlines() if (match := pattern.match(line))]
    return [(number(match[3]), number(match[5]), match[6] or "") for match in found]


def check_rows(rows: list[tuple[float, float, str]]) -> int:
    (hours, usd, said), *others = rows
    assert said == "the choice"
    checked = 0
    for other_hours, other_usd, words in others:
        for found in COMPARISON.findall(words):
            of_usd = found[2] in {"dearer", "cheaper"}
            assert agrees(found, other_usd if of_usd else other_hours, usd if of_usd else hours), words
            checked += 1
    return checked


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
class TestComparisons:
    def test_in_the_table_of_a_terminal(self, plan: Plan) -> None:
        text = page_text(plan_page(plan), Console(width=200, color_system=None))
        rows = rows_of(text, ROW)
        assert len(rows) == 1 + len(plan.alternatives)
        check_rows(rows)

    def test_in_cost_md(self, plan: Plan) -> None:
        rows = rows_of(cost_markdown(plan), MARKDOWN_ROW)
        assert len(rows) == 1 + len(plan.alternatives)
        check_rows(rows)

    def test_in_sentences(self, plan: Plan) -> None:
        """`p95 $72.86 instead of $106, 31 % cheaper`, and `is 3 % cheaper (p95 $103, not $106)`."""
        text = " ".join([plan.reason, *plan.sensitivity])
        for usd, before, *words in re.findall(rf"{ANY_USD} instead of {ANY_USD}, {COMPARISON.pattern}", text):
            assert agrees(tuple(words), number(usd), number(before))
        for hours, before, *words in re.findall(rf"([\d.,]+) h instead of ([\d.,]+) h, {COMPARISON.pattern}", text):
            assert agrees(tuple(words), number(hours), number(before))
        for *words, usd, chosen in re.findall(rf"is {COMPARISON.pattern} \(p\d+ {ANY_USD}, not {ANY_USD}\)", text):
            assert agrees(tuple(words), number(usd), number(chosen))
        said = len(COMPARISON.findall(text))
        assert said == len(re.findall(r"(instead of \S+( h)?, [\d.]+( %|x))|(is [\d.]+( %|x) \w+ \(p\d+ )", text))

    def test_of_a_review_against_another_plan(self, plan: Plan) -> None:
        cost = review_cost(plan, against=PLAN)
        assert cost.change is not None
        for item in cost.change.differences:
            if item.delta and item.delta != "<1 %":
                before, after = (_hours_or_usd(text) for text in (item.before, item.after))
                delta = f"{after / before:.1f}x" if after >= 2 * before else f"{(after / before - 1) * 100:+.0f} %"
                assert item.delta == delta
        page = page_text(review_page(plan, cost), Console(width=400, color_system=None))
        assert cost.change.summary in page
        assert cost.change.summary in cost_markdown(plan, cost).replace("\\", "")

    def test_of_what_spot_saves(self, plan: Plan) -> None:
        text = page_text(plan_page(plan), Console(width=400, color_system=None))
        for saved, usd, on_demand in re.findall(rf"spot saves {ANY_USD}: {ANY_USD} instead of {ANY_USD}", text):
            assert number(saved) == pytest.approx(number(on_demand) - number(usd), abs=0.51)

    def test_rows_are_of_one_ruler(self, plan: Plan) -> None:
        assert plan.compared == ("closed form" if plan in (PLAN, PLANS["never"]) else "simulation")


def _hours_or_usd(text: str) -> float:
    return number(text.removesuffix(" min")) / 60 if text.endswith("min") else number(text.strip("$ h"))


def test_there_is_something_to_check() -> None:
    pages = [page_text(plan_page(plan), Console(width=200, color_system=None)) for plan in PLANS.values()]
    assert sum(check_rows(rows_of(text, ROW)) for text in pages) >= 20
