"""The parameters that the gradient noise is measured at, of a model in shards: `probes.training_state` for all at once.

The first process reads and writes the same files as for a model that is whole, so that probes of one sweep share a
state whatever their strategy. All processes must call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

from probes import cluster, training_state
from probes.instrument import Instrument
from probes.training_state import OtherModel, TrainingStage


def share(file: Path, instrument: Instrument, own: TrainingStage, *, given: bool) -> TrainingStage:
    """What the file has is loaded; where there is none, or of another model, the own state is kept, and written."""
    model, first = instrument.model, instrument.place.rank == 0
    assert model is not None  # noqa: S101 - it is in shards, so it was seen
    found, stage = _read(file, instrument, own, given=given) if first else (None, own)
    loads, exists = cluster.any_of([found is not None, first and file.exists()], instrument.place)
    if loads:
        _spread(model, found or {})
    elif not exists:
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if first:
            training_state.write(file, _numbers(state), own)
    return stage


def _read(
    file: Path, instrument: Instrument, own: TrainingStage, *, given: bool
) -> tuple[dict[str, torch.Tensor] | None, TrainingStage]:
    if given:
        return training_state.read(file, instrument)
    with contextlib.suppress(OtherModel):
        if file.exists():
            return training_state.read(file, instrument)
    return None, own


def _spread(model: torch.nn.Module, found: dict[str, Any]) -> None:
    """From the first process, one tensor after the other."""
    known = get_model_state_dict(model)
    kept = {name: value for name, value in found.items() if name in known}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, kept, options=options)


def _numbers(state: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
