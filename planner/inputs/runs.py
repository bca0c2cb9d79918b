"""What ran when something was measured, and which measurements are of what ran last.

A run is a script with what it imports, its arguments, and the image or the software here; its key is a hash of all of
them. The newest measurement of a place tells which run counts there. Rows without a key, written by hand, imported or
of older versions of scav, always count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.inputs.measurements import LOCAL, Measurement


class Ran(NamedTuple):
    """What a measurement is of, and how a person recognises it."""

    key: str | None  # None: in an image that is not built yet
    command: str  # its placeholders unfilled
    script_sha256: str | None  # of the script and what it imports; None where the image holds them

    def mark(self, row: Measurement) -> Measurement:
        marks = {"run_key": self.key, "run_command": self.command, "script_sha256": self.script_sha256}
        return row.model_copy(update=marks)

    def known(self, rows: Iterable[Measurement]) -> list[Measurement]:
        """Those of this run, and those that do not say what ran."""
        return [row for row in rows if row.run_key is None or self._is_of(row)]

    def _is_of(self, row: Measurement) -> bool:
        if self.key is not None:
            return row.run_key == self.key
        same = (row.run_command, row.script_sha256) == (self.command, self.script_sha256)
        return same and row.image_digest is not None  # only what runs in a container has no key yet


def are_older(rows: Sequence[Measurement]) -> list[bool]:
    """Of each row, whether something else was measured after it: in the same place, or with another script anywhere."""
    newest_key = {_place(row): row.run_key for row in rows if row.run_key is not None}
    scripts = [row.script_sha256 for row in rows if row.script_sha256 is not None]
    newest_script = scripts[-1] if scripts else None
    return [
        row.run_key is not None
        and (row.run_key != newest_key[_place(row)] or row.script_sha256 not in (None, newest_script))
        for row in rows
    ]


def of_newest_runs(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    return tuple(row for row, older in zip(rows, are_older(rows), strict=True) if not older)


def _place(row: Measurement) -> str:
    """Here, in containers here, on a Ray cluster, or rented: a key holds the image, so the same script has several."""
    if row.instance_type != LOCAL:
        return "rented"
    if "ray" in row.software:
        return "on ray"
    return "here" if row.image_digest is None else "in containers"


def older_runs(rows: Sequence[Measurement]) -> list[str]:
    """A warning, where some are left out."""
    count = sum(are_older(rows))
    advice = "scav measurements list shows them, drop --older removes them"
    return [f"used without {count} of {len(rows)} measurements: something else was run since; {advice}"] * bool(count)


def changed_since(rows: Sequence[Measurement], *, script_sha256: str | None, image: str | None) -> list[str]:
    """A warning where the newest measurements are of another script, or image, than the job has now."""
    newest = of_newest_runs(rows)
    scripts = [row.script_sha256 for row in newest if row.script_sha256 is not None]
    images = {row.image_digest for row in newest if row.run_key is not None and row.instance_type != LOCAL}
    again = "was changed since it was measured: scav probe measures it again"
    found = []
    if script_sha256 is not None and scripts and script_sha256 != scripts[-1]:
        found.append(f"run.command {again}")
    if image is not None and images - {digest_of(image)}:
        found.append(f"run.image {again}, on aws")
    return found


def digest_of(image: str) -> str:
    return image.rpartition("@")[2]
