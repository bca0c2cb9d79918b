"""Everything that can go wrong and is the user's to mend; anything else is our bug and tracebacks.

ScavError                 exit 1
├── InputError            exit 1   a file or option says something that cannot be; carries where
├── AwsFailed             exit 1   AWS refuses, or cannot be reached
├── OutOfMemory           exit 1   a probe's batch size does not fit the memory; a smaller one may
├── ScriptFailed          exit 1   a training script ended by itself: the last lines that it wrote, then our sentence
├── NoFeasiblePlan        exit 3   nothing in the catalogue meets the constraints
├── GuardrailExceeded     exit 4   a plan is dearer or slower than the pipeline allows, or not what scav planned
├── StaleWorkspace        exit 5   rendered files do not follow from their inputs any more
└── TerraformFailed       exit 1   our sentence, then Terraform's own message in full
    └── TerraformInterrupted  exit 130   it was asked to stop, stopped in order and saved its state
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class ScavError(Exception):
    """Shown as one line on stderr by the command line, nowhere else."""

    exit_code: ClassVar[int] = 1
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
    """Spans lines: nothing of what Terraform said is left out or reworded."""

    def __init__(self, sentence: str, terraform_message: str = ""):
        self.sentence, self.terraform_message = sentence, terraform_message
        super().__init__(f"{sentence}\n\n{terraform_message}" if terraform_message else sentence)


class TerraformInterrupted(TerraformFailed):
    exit_code = 130


def one_line(text: str, limit: int = 400) -> str:
    """Text that a terminal shows on one line, whatever a user put into it."""
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


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
