"""Two rules on the same probes, and the columns of the tables beside them."""

from __future__ import annotations

import math

from regret_rules import as_markdown
from regret_tables import by_method


def test_an_application_is_one_draw_whatever_its_limits() -> None:
    rows = [
        {"app": app, "objective": "cost", "max_usd": limit, "upper end": upper, "median": median}
        for app, limit, upper, median in (
            ("one", 10.0, 4.0, 2.0),
            ("one", math.inf, 2.0, 2.0),
            ("two", 10.0, 1.0, 3.0),
            ("two", math.inf, 1.0, 1.0),
        )
    ]
    table = as_markdown([*rows, *({**row, "objective": "time"} for row in rows)]).splitlines()
    assert "| cost | $10 | 2.50 | 2.50 | 0.00 | 2.00 |" in table
    assert "| cost | the whole plan | 1.50 | 1.50 | 0.00 | 0.00 |" in table
    assert "| cost | **each** | 2.00 | 2.00 | 0.00 | 1.00 |" in table


def test_what_can_choose_whole_nodes_only_is_judged_by_them() -> None:
    rows = [
        {"method": "m", "objective": "cost", "app": app, "probes": 1, "regret": 10.0, "probe_share": 0.0, **more}
        for app, more in (("one", {"over_whole": 0.0}), ("two", {"over_whole": 4.0}))
    ]
    [row] = by_method(rows)
    assert (row["over_whole"], row["over_whole_error"]) == (2.0, 2.0)
    [row] = by_method([{key: value for key, value in each.items() if key != "over_whole"} for each in rows])
    assert (row["regret"], row["regret_error"]) == (10.0, 0.0)
