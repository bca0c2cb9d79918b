"""Everything that can go wrong and is the user's to mend; anything else is our bug and tracebacks.

ScavError                 exit 1
├── InputError            exit 1   a file or option says something that cannot be; carries where
├── AwsFailed             exit 1   AWS refuses, or cannot be reached
├── Interrupted           exit 128 + signal   Ctrl-C, SIGTERM or SIGHUP while probing; nothing is left running
├── OutOfMemory           exit 1   a probe's batch size does not fit the memory; a smaller one may
├── ScriptFailed          exit 1   a training script ended by itself: the last lines that it wrote, then our sentence
├── NoFeasiblePlan        exit 3   nothing in the catalogue meets the constraints
├── GuardrailExceeded     exit 4   a plan is dearer or slower than the pipeline allows, or not what scav planned
├── StaleWorkspace        exit 5   rendered files do not follow from their inputs any more
└── TerraformFailed       exit 1   our sentence, then Terraform's own message in full
    └── TerraformInterrupted  exit 130   it was asked to stop, stopped in order and saved its state
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class ScavError(Exception):
    """Shown as one line on stderr by the command line, nowhere else."""

    exit_code: int = 1
    said_before: str = ""  # lines of another program, shown as they are before ours


class InputError(ScavError):
    """Names the file, key and line at fault as far as they are known."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None, key: str | None = None):
        self.message, self.file, self.line, self.key = message, file, line, key
        place = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(one_line(part) for part in (place, key, message) if part))


class AwsFailed(ScavError):
    """In our words, with AWS's own where they help."""


class OutOfMemory(ScavError):
    """Carries the local batch size, for whoever goes on with another."""

    def __init__(self, message: str, *, gpu_batch: int):
        self.gpu_batch = gpu_batch
        super().__init__(message)


class ScriptFailed(ScavError):
    """Nobody explains a script's mistake better than the script."""

    def __init__(self, message: str, *, said: str):
        self.said_before = said
        super().__init__(message)


class NoFeasiblePlan(ScavError):
    """Carries the nearest misses in its message, so it spans a few lines."""

    exit_code = 3


class GuardrailExceeded(ScavError):
    exit_code = 4


class StaleWorkspace(ScavError):
    exit_code = 5


class TerraformFailed(ScavError):
    """Spans lines: nothing of what Terraform said is left out or reworded, but for colours."""

    def __init__(self, sentence: str, terraform_message: str = ""):
        self.sentence, self.terraform_message = sentence, printable_lines(terraform_message)
        super().__init__(f"{sentence}\n\n{self.terraform_message}" if terraform_message else sentence)


class TerraformInterrupted(TerraformFailed):
    exit_code = 130


# What a terminal takes as a command: ESC [ … letter, ESC ] … BEL, and the like.
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_])")


def printable_lines(text: str) -> str:
    """Somebody else's text of several lines without colours and without anything else that a terminal would obey."""
    lines = _TERMINAL_CODE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(printable(line.expandtabs(4)) for line in lines)


def one_line(text: str, limit: int = 400) -> str:
    """Text that a terminal shows on one line, whatever a user put into it."""
    shown = printable(text[:limit])
    return shown if len(text) <= limit and len(shown) <= limit else shown[: limit - 1] + "…"


def printable(text: str) -> str:
    """Control characters, ends of lines and changes of direction as `\\x1b`: nothing that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_LOOK_ALIKE = str.maketrans("lio", "110")  # us-east-l


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A clause to end an error with, empty if nothing known is close."""
    import difflib  # only once something is wrong

    by_lower_case = {name.lower(): name for name in known}
    start = text[:80].lower()
    looks_alike = [name for name in by_lower_case if name.translate(_LOOK_ALIKE) == start.translate(_LOOK_ALIKE)]
    begun = looks_alike or [name for name in by_lower_case if start and name.startswith(start)]
    nearest = begun[:3] or difflib.get_close_matches(start, by_lower_case, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(by_lower_case[name] for name in nearest)}?" if nearest else ""
