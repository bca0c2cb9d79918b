"""The file behind AWS's Spot Instance Advisor: the share of instances taken back last month, in five classes.

It is public and has no version; what does not look as expected is left out rather than guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.errors import InputError

ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
_CLASSES = range(5)


def parse_advisor(text: str) -> dict[tuple[str, str], int]:
    """The class of Linux machines by region and instance type: 0 is below 5 % a month, 4 above 20 %."""
    try:
        regions = json.loads(text)["spot_advisor"]
        found = {
            (region, name): row["r"]
            for region, systems in regions.items()
            for name, row in _linux(systems).items()
            if isinstance(row, Mapping) and row.get("r") in _CLASSES
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("AWS's Spot Instance Advisor answers in a format that scav does not know") from None
    return found


def _linux(systems: Mapping[str, Any]) -> Mapping[str, Any]:
    linux = systems.get("Linux", {})
    return linux if isinstance(linux, Mapping) else {}
