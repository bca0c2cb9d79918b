"""How a script is asked to spread its model over processes: SCAV_STRATEGY, a JSON object. Standard library only."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

VARIABLE = "SCAV_STRATEGY"
SHARDINGS = ("ddp", "zero1", "zero2", "fsdp", "hsdp")
RECOMPUTES = ("none", "selective", "full")
GATHERED = ("zero2", "fsdp", "hsdp")  # parameters are kept in shards and gathered where they are used


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What data parallelism shards, over how many processes layers are cut, and what is computed twice."""

    sharding: str = "ddp"
    tensor_parallel: int = 1
    pipeline: int = 1
    recompute: str = "none"

    @property
    def model_processes(self) -> int:
        """That hold one copy of the model together, and see the same samples."""
        return self.tensor_parallel * self.pipeline

    @property
    def is_gathered(self) -> bool:
        return self.sharding in GATHERED

    @property
    def shown(self) -> str:
        """As --strategy takes it."""
        usual = Strategy()
        named = [name for name in asdict(self) if getattr(self, name) != getattr(usual, name)]
        return ",".join([self.sharding, *(f"{name}={getattr(self, name)}" for name in named if name != "sharding")])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Strategy:
        """A ValueError says in one line what cannot be."""
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ValueError(f'{VARIABLE} is no JSON object such as {{"sharding": "fsdp"}}')
        known = [field.name for field in fields(cls)]
        for name, value in content.items():
            _refuse(name, value, known)
        return cls(**content)

    @classmethod
    def from_environment(cls) -> Strategy | None:
        """None where nobody asks for any."""
        text = os.environ.get(VARIABLE, "")
        return cls.from_json(text) if text else None


def _refuse(name: str, value: Any, known: list[str]) -> None:
    if name not in known:
        raise ValueError(f"{VARIABLE} has no {name}: known are {', '.join(known)}")
    choices = {"sharding": SHARDINGS, "recompute": RECOMPUTES}.get(name)
    if choices and value not in choices:
        raise ValueError(f"{VARIABLE}: {name} is one of {', '.join(choices)}")
    if not choices and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{VARIABLE}: {name} is a whole number from 1")
