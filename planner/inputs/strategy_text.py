"""`fsdp,tensor_parallel=2,recompute=full`: a strategy on a command line and in a table, and what a job can do of it."""

from __future__ import annotations

from pydantic import ValidationError

from planner.contract import first_fault
from planner.errors import InputError
from planner.inputs.job.strategies import ParallelStrategy
from planner.inputs.job.workload import Workload

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


def refuse_strategy(workload: Workload, strategy: ParallelStrategy) -> None:
    """One that the job's script cannot do, or any where the job has no shape."""
    shape, options, key = workload.transformer, workload.strategies_or_default, _OPTION
    if shape is None:
        raise InputError("needs workload.transformer in the job file", key=key)
    for said, known, name in (
        (strategy.sharding, options.sharding, "sharding"),
        (strategy.recompute, options.recompute, "recompute"),
    ):
        if said not in known:
            raise InputError(f"{said} is not in workload.strategies.{name} ({', '.join(known)})", key=key)
    for degree, most, name in (
        (strategy.tensor_parallel, options.tensor_parallel, "tensor_parallel"),
        (strategy.pipeline, options.pipeline, "pipeline"),
    ):
        if degree > most:
            raise InputError(f"{name} {degree} is beyond workload.strategies.{name} ({most})", key=key)
