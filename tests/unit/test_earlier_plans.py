"""Plans of earlier versions stay readable: loaded, written again, reviewed and simulated. One of each kind is kept.

A release adds its own: `scav plan` of the examples, as tests/golden/plans/VERSION-NAME.json, three rows of its front.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.plan.review.cost import review_cost
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, review_page
from planner.plan.schema import Plan, format_plan, parse_plan
from planner.plan.spot import on_demand_case, simulated_case

KEPT = sorted((Path(__file__).parents[1] / "golden" / "plans").glob("*.json"))


@pytest.fixture(params=KEPT, ids=lambda path: path.stem)
def earlier(request: pytest.FixtureRequest) -> tuple[str, Plan]:
    text = request.param.read_text(encoding="utf-8")
    return text, parse_plan(text, file=request.param.name)


def test_every_kind_is_kept() -> None:
    assert {path.stem for path in KEPT} >= {
        "0.1.0-deepvm",
        "0.1.0-gpt2-openwebtext",
        "0.1.0-on-demand",
        "0.1.0-resnet50-imagenet",
    }


def test_nothing_of_it_is_lost(earlier: tuple[str, Plan]) -> None:
    text, plan = earlier
    again = json.loads(format_plan(plan))
    assert _without_later_keys(again, json.loads(text)) == json.loads(text)


def _without_later_keys(now: object, then: object) -> object:
    """What was not there then says nothing now."""
    if isinstance(now, dict) and isinstance(then, dict):
        assert all(now[key] is None for key in now.keys() - then.keys())
        return {key: _without_later_keys(now[key], then[key]) for key in then}
    if isinstance(now, list) and isinstance(then, list):
        return [_without_later_keys(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_it_is_reviewed(earlier: tuple[str, Plan]) -> None:
    _, plan = earlier
    cost = review_cost(plan, max_usd=1.0, against=plan)
    text = page_text(review_page(plan, cost, verbose=True))
    assert "Change   none" in text
    assert "None" not in text
    assert "All rows" not in text  # they were of two rulers then
    assert cost_markdown(plan, cost)


def test_it_is_simulated(earlier: tuple[str, Plan]) -> None:
    _, plan = earlier
    case = simulated_case(plan) or on_demand_case(plan)
    assert case.nodes == plan.choice.node_count
