"""What scripts of the tests write down of themselves: samples and micro-steps of each optimizer step."""

from __future__ import annotations

import os
from pathlib import Path


class Logbook:
    def __init__(self, file: str | None) -> None:
        self._stream = None
        if file is not None:
            path = Path(f"{file}.{os.environ.get('RANK', 0)}")
            self._stream = path.open("w", buffering=1, encoding="utf-8")
        self._sizes: list[int] = []

    def forward(self, samples: int) -> None:
        self._sizes.append(samples)

    def end_step(self) -> None:
        if self._stream is not None:
            self._stream.write(f"{sum(self._sizes)} {len(self._sizes)}\n")
        self._sizes.clear()
