"""`fsdp,tensor_parallel=2,recompute=full`: a strategy on a command line and in a table."""

from __future__ import annotations

from pydantic import ValidationError

from planner.contract import first_fault
from planner.errors import InputError
from planner.inputs.job.strategies import ParallelStrategy

_OPTION = "--strategy"


def parse_strategy(text: str) -> ParallelStrategy:
    """The sharding first, then what is not as usual."""
    sharding, *parts = text.split(",")
    named = [part.partition("=")[::2] for part in parts]
    content: dict[str, str | int] = {"sharding": sharding}
    for name, value in named:
        if name in content:
            raise InputError(f"says {name} twice", key=_OPTION)
        content[name] = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
    try:
        return ParallelStrategy.model_validate(content)
    except ValidationError as error:
        fault = first_fault(error, ParallelStrategy)
        raise InputError(f"{fault.key}: {fault.message}", key=_OPTION) from None


def strategy_text(strategy: ParallelStrategy) -> str:
    """As it is written on a command line."""
    others = strategy.model_dump(exclude={"sharding"}, exclude_defaults=True)
    return ",".join([strategy.sharding, *(f"{name}={value}" for name, value in others.items())])
