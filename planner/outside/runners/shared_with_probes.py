"""What runners have in common with the probes that they start: settings, placeholders, last words, batches that fit.

The one place where scav's own process imports `probes`. It looks in their folder first: another distribution, or the
folder that scav is called from, may have a package of that name.
"""

from __future__ import annotations

import sys

from planner.outside import assets

sys.path.insert(0, str(assets.probes_parent()))

from probes import ray_node
from probes.batch_search import largest_fitting, next_batch, smallest_too_large
from probes.last_words import last_lines
from probes.marked import MARK, kill_marked
from probes.placeholders import hold_batch
from probes.settings import Settings
from probes.strategy import Strategy

__all__ = [
    "MARK",
    "Settings",
    "Strategy",
    "hold_batch",
    "kill_marked",
    "largest_fitting",
    "last_lines",
    "next_batch",
    "ray_node",
    "smallest_too_large",
]
