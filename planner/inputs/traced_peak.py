"""What `probes/trace_script.py` says of a training that it ran without memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.contract import Contract

_Count = Annotated[int, Field(ge=0, le=10**15)]
_Bytes = Annotated[float, Field(gt=0, le=1e18)]


class TracedPeak(Contract):
    """Of the first process, on one GPU."""

    peak_bytes: _Bytes = Field(description="allocated at the fullest moment of two optimizer steps")
    moment: Annotated[str, Field(max_length=40)] = Field(description="when that was")
    samples_per_step: _Count | None = Field(default=None, description="of this process, where they can be counted")
    trained_parameters: _Count = Field(description="of the whole model")
    trained_bytes: _Count = Field(description="what this GPU keeps of them")
    optimizer_bytes: _Count = Field(description="and of the optimizer's state")
    torch: Annotated[str, Field(max_length=40)]
