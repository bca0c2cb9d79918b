"""A plan for a terminal of any width: the decision in three lines, why, what would change it, and what stood beside it.

Rich wraps and colours; nothing here decides or computes. In a pipe the same text comes without any of its codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from planner.errors import printable
from planner.plan.review import decision
from planner.plan.review.cost import Cost, amount, moved_prices
from planner.plan.review.strategy_entries import strategy_entries
from planner.plan.schema import Plan
from planner.units import format_usd

if TYPE_CHECKING:  # rich takes a while to import, and most commands show no plan
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 80
_LEAST_REASON = 17  # columns beside the figures; with less the reasons stand below them


def plan_page(plan: Plan, *, verbose: bool = False) -> RenderableType:
    """What `scav plan` answers."""
    return _spaced(
        _entries(
            [
                ("Cluster", _strong(decision.cluster_text(plan.choice))),
                ("Time", _strong(decision.time_text(plan))),
                ("Cost", _strong(decision.cost_text(plan))),
            ]
        ),
        _entries([("Why", plan.reason), *_under("What if", plan.sensitivity)]),
        _Alternatives(plan) if plan.alternatives else None,
        _entries(
            [
                ("Job", plan.summary),
                ("Batch", decision.batch_text(plan.choice)),
                ("Quota", decision.quota_text(plan.choice)),
                *strategy_entries(plan),
                ("Spot", "; ".join(filter(None, (decision.spot_text(plan), decision.fallback_text(plan))))),
                ("Feeding", plan.feeding.statement if plan.feeding and (plan.feeding.limits or verbose) else ""),
                ("Left out", decision.left_out_text(plan)),
                *(_details(plan) if verbose else ()),
            ]
        ),
    )


def review_page(plan: Plan, cost: Cost, *, verbose: bool = False) -> RenderableType:
    """What changed and which limits do not hold, then the plan and where its dollars go."""
    return _spaced(
        _entries([*_changed(cost), *_guardrails(cost)]),
        plan_page(plan, verbose=verbose),
        _entries([("Dollars", _breakdown(plan)), ("Unpriced", decision.not_priced(plan))]),
        *_prices(cost),
        _differences(cost),
    )


def page_text(page: RenderableType, console: Console | None = None) -> str:
    """As this console would show it, without spaces at the ends of lines; for a pipe if there is none."""
    from rich.console import Console

    console = console or Console(width=PIPE_WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(page)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _details(plan: Plan) -> list[tuple[str, str]]:
    return [
        ("Evidence", f"{plan.evidence.statement}; prices: {plan.inputs.catalog}"),
        ("Losses", decision.spot_details(plan)),
        ("Unpriced", decision.not_priced(plan)),
    ]


def _changed(cost: Cost) -> list[tuple[str, Text | str]]:
    return [] if cost.change is None else [("Change", _strong(cost.change.summary or "none"))]


def _guardrails(cost: Cost) -> list[tuple[str, Text | str]]:
    rows: list[tuple[str, Text | str]] = []
    for rail in cost.guardrails:
        limit, value = amount(rail, rail.limit), amount(rail, rail.value)
        text = f"{rail.name.replace('_', ' ')} {limit}: {value}, {'kept' if rail.kept else 'EXCEEDED'}"
        rows.append(("Limit", _styled(text, "green" if rail.kept else "bold red")))
    return rows


def _breakdown(plan: Plan) -> str:
    parts = plan.estimate.breakdown
    named = (
        ("machines", parts.compute),
        ("rework", parts.rework),
        ("storage", parts.storage),
        ("network", parts.network),
    )
    return ", ".join(f"{name} {format_usd(usd)}" for name, usd in named)


def _prices(cost: Cost) -> list[RenderableType | None]:
    found = moved_prices(cost)
    if found is None:
        return []
    sentence, prices = found
    return [
        _entries([("PRICES", _styled(sentence, "bold red"))]),
        _table(["", "known", "here"], prices, "lrr"),
    ]


def _differences(cost: Cost) -> RenderableType | None:
    if cost.change is None or not cost.change.differences:
        return None
    rows = [(item.name, item.before, item.after, item.delta or "") for item in cost.change.differences]
    return _table(["", "before", "after", "change"], rows, "lllr")


class _Column(NamedTuple):
    heading: str
    place: int  # in a row of `decision`
    side: str
    dropped: int  # earlier where columns are too many for the width; 0 stays


class _Alternatives:
    """The choice first, then what stood beside it: as many columns as there is room for."""

    def __init__(self, plan: Plan) -> None:
        self.note = decision.compared_text(plan)
        self.rows = [
            decision.choice_row(plan),
            *(decision.option_row(option, option.why_not) for option in plan.alternatives),
        ]
        at = decision.quantile_heading(plan)
        self.columns = [
            _Column("cluster", 0, "l", 0),
            _Column("spot", 1, "r", 2),
            _Column("batch", 2, "r", 1),
            _Column("hours", 3, "r", 3),
            _Column(at, 4, "r", 0),
            _Column("dollars", 5, "r", 4),
            _Column(at, 6, "r", 0),
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self._that_fit(options.max_width)
        beside = options.max_width - self._width(kept) >= _LEAST_REASON
        headings = ["", *(column.heading for column in kept), *(["why not"] if beside else [])]
        cells = [
            (f"{number}", *(row[column.place] for column in kept), *([row[-1]] if beside else []))
            for number, row in enumerate(self.rows, start=1)
        ]
        sides = "r" + "".join(column.side for column in kept) + "l" * beside
        yield _table(headings, cells, sides, first_style="bold")
        reasons = _entries([(f"{number}", row[-1]) for number, row in enumerate(self.rows, start=1)], label_width=1)
        if reasons and not beside:
            yield reasons
        if self.note:
            yield _styled(self.note, "dim")

    def _that_fit(self, width: int) -> list[_Column]:
        kept = self.columns
        for dropped in range(1, 1 + max(column.dropped for column in self.columns)):
            if self._width(kept) <= width:
                break
            kept = [column for column in kept if column.dropped != dropped]
        return kept

    def _width(self, columns: Sequence[_Column]) -> int:
        """With the number of the row, and two spaces after each column."""
        widths = [max(len(column.heading), *(len(row[column.place]) for row in self.rows)) for column in columns]
        return 3 + sum(widths) + 2 * len(widths)


def _spaced(*parts: RenderableType | None) -> Group:
    """A blank line between what there is."""
    from rich.console import Group

    shown = [part for part in parts if part is not None]
    return Group(*(each for part in shown for each in (*([""] if part is not shown[0] else []), part)))


def _entries(rows: Iterable[tuple[str, Text | str]], label_width: int = 8) -> Table | None:
    """Labelled text; what is empty is left out."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=label_width, no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for label, text in rows:
        if text:
            grid.add_row(label, _styled(text) if isinstance(text, str) else text)
    return grid if grid.row_count else None


def _under(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if index == 0 else "", line) for index, line in enumerate(lines)]


def _strong(text: str) -> Text:
    return _styled(text, "bold")


def _styled(text: str, style: str = "") -> Text:
    """Somebody else may have written it: nothing in it is obeyed."""
    from rich.text import Text

    return Text(printable(text), style=style)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], sides: str, first_style: str = "") -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, side in zip(headings, sides, strict=True):
        last = side == "l" and heading in {"why not", "after"}
        table.add_column(heading, justify="right" if side == "r" else "left", no_wrap=not last, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*(_styled(cell) for cell in row), style=first_style if index == 0 else "")
    return table
