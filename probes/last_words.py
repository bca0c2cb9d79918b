"""What a program that failed said last. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LAST_LINES = 5
_MOST_LINES = 15
_OF_TORCHRUN = ("torch/distributed", "torch.distributed.elastic")
# Of a script's traceback, what leads to the script: scav started runpy, and runpy the script.
_LEADS_TO_SCRIPT = re.compile(r'  File "(<frozen runpy>|[^"]*/probes/(run|inspect_script)\.py)", line \d+, in \S+$')
_TRACEBACK = "Traceback (most recent call last):"
_REPORT_BEGINS = "failed (exitcode:"  # of torchrun, which follows what the script said with a traceback of its own


def last_words(lines: Iterable[str]) -> str:
    """On one line. The script's own, which name its mistake; torchrun's report after them does not."""
    own = [line.strip() for line in _own(lines)]
    errors = [line for line in own if "Error" in line and "ChildFailedError" not in line]
    return " | ".join(errors[-1:] or own[-_LAST_LINES:])


def last_lines(lines: Iterable[str]) -> list[str]:
    """As they are, from argparse's usage on where there is one. Processes that failed alike are heard once."""
    own = list(dict.fromkeys(_without_our_frames(_own(lines))))
    while own and own[-1].startswith(_TRACEBACK):  # of torchrun, which was ended because time was over
        own.pop()
    usages = [number for number, line in enumerate(own) if line.startswith("usage:")]
    return own[usages[-1] :][:_MOST_LINES] if usages else own[-_MOST_LINES:]


def _without_our_frames(lines: Iterable[str]) -> Iterator[str]:
    """A frame is a line with its place, and lines further in that show it."""
    ours = False
    for line in lines:
        ours = bool(_LEADS_TO_SCRIPT.match(line)) or (ours and line.startswith("    "))
        if not ours:
            yield line


def _own(lines: Iterable[str]) -> Iterable[str]:
    """Without torchrun's report, which ends with its second line of equals signs; another node's log may follow."""
    rules_left = 0
    for line in lines:
        of_torchrun = any(part in line for part in _OF_TORCHRUN)
        if of_torchrun and _REPORT_BEGINS in line:
            rules_left = 2
        elif rules_left:
            rules_left -= bool(line.strip()) and not line.strip("= \n")
        elif line.strip() and not of_torchrun:
            yield line.rstrip()
