"""The parameters that the gradient noise is measured at: one state of the training for a whole sweep.

Noise grows while a model is trained, and batch sizes train it differently: only at the same parameters can what they
measure be compared and pooled. The first probe of a sweep writes its own, later ones take them from there. A checkpoint
of the user's takes their place, to measure later in training.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from probes.instrument import Instrument

_INSERTED = ("_orig_mod.", "_checkpoint_wrapped_module.")  # into names, by torch.compile and by recompute
_NUMBERS_OF_EACH = 1024  # of every parameter: an optimizer step moves all of them, so these tell two states apart
_STEP_NAMES = ("step", "global_step")  # as probes.checkpoints and Lightning call it

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """How far the model has been trained; None where a checkpoint does not say."""

    step: int | None
    samples: int | None


def tensors_of(instrument: Instrument) -> dict[str, torch.Tensor]:
    """All that gradients follow from, by name; what the optimizer trains outside the model, by its number."""
    model = instrument.model
    named = [*model.named_parameters(), *model.named_buffers()] if model is not None else []
    known = {id(tensor) for _, tensor in named}
    others = enumerate(instrument.parameters())
    named += [(f"optimizer.{number}", tensor) for number, tensor in others if id(tensor) not in known]
    return {_plain(name): tensor for name, tensor in named if tensor.is_floating_point()}


def _plain(name: str) -> str:
    for inserted in _INSERTED:
        name = name.replace(inserted, "")
    return name


class OtherModel(Exception):
    """A file that does not hold the parameters of the model, in words."""


def share(file: Path, instrument: Instrument, own: TrainingStage) -> TrainingStage:
    """What the first probe of a sweep has written is loaded; the first writes its own, another model keeps its own."""
    if not file.exists():
        write(file, tensors_of(instrument), own)
        return own
    with contextlib.suppress(OtherModel):
        return load(file, instrument)
    return own


def load(file: Path, instrument: Instrument) -> TrainingStage:
    """Into the model that is being trained."""
    found, stage = read(file, instrument)
    tensors = tensors_of(instrument)
    with torch.no_grad():
        for name, saved in found.items():
            tensors[name].copy_(saved)
    return stage


def read(file: Path, instrument: Instrument) -> tuple[dict[str, torch.Tensor], TrainingStage]:
    """What a file has for the model, by the model's names."""
    content = _read(file)
    found = _matched(file, content, instrument)
    step = next((content[name] for name in _STEP_NAMES if isinstance(content.get(name), int)), None)
    samples = content.get("samples")
    return found, TrainingStage(step, samples if isinstance(samples, int) else None)


def fault(file: Path, instrument: Instrument) -> str | None:
    """Why a file cannot be loaded, before anything is measured; None if it can."""
    try:
        _matched(file, _read(file), instrument)
    except OtherModel as error:
        return str(error)
    return None


def make_equal(tensors: Iterable[torch.Tensor]) -> None:
    """On every process what the first one has: windows without communication let them drift apart."""
    if dist.is_initialized():
        for tensor in tensors:
            dist.broadcast(tensor.data, src=0)


def fingerprint(parameters: Iterable[torch.Tensor]) -> str:
    """Twelve hexadecimal digits that only the same parameters have."""
    digest = hashlib.sha256()
    for parameter in parameters:
        some = parameter.detach().flatten()[:_NUMBERS_OF_EACH].float().cpu().contiguous()
        digest.update(str(tuple(parameter.shape)).encode() + bytes(some.view(torch.uint8).tolist()))
    return digest.hexdigest()[:12]


def write(file: Path, tensors: Tensors, stage: TrainingStage) -> None:
    """Whole or not at all, and only where it leaves as much room again: without it, each probe has its own state."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    temporary = file.with_name(f".{file.name}.tmp")
    with contextlib.suppress(OSError, RuntimeError):  # a full disk is a RuntimeError of torch's
        if shutil.disk_usage(file.parent).free > 2 * size:
            model = {name: tensor.detach() for name, tensor in tensors.items()}
            torch.save({"step": stage.step, "samples": stage.samples, "model": model}, temporary)
            temporary.replace(file)
    temporary.unlink(missing_ok=True)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(file)
        else:  # only the parts that are needed, however large the file is; tensors alone, no code
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except Exception as error:  # torch's unpickler raises whatever the bytes happen to mean
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise OtherModel(f"{file.name} cannot be read as tensors ({first_line}): save model.state_dict()") from None
    return content if isinstance(content, Mapping) else {}


def _refuse_what_is_not_finite(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise OtherModel(f"{file.name} holds numbers that are not finite ({name}): the training had failed by then")


def _matched(file: Path, content: Mapping[str, Any], instrument: Instrument) -> dict[str, torch.Tensor]:
    """The saved tensors by the model's names; all that are trained must be there, in the right shape."""
    tensors = tensors_of(instrument)
    trained = {id(parameter) for parameter in instrument.parameters()}
    fewest = needed = sorted(name for name, tensor in tensors.items() if id(tensor) in trained)
    for saved in _holders(content):
        for before in _prefixes(saved, needed[0]):
            found = {
                name: saved[before + name]
                for name, tensor in tensors.items()
                if before + name in saved and saved[before + name].shape == tensor.shape
            }
            missing = [name for name in needed if name not in found]
            if not missing:
                _refuse_what_is_not_finite(file, found)
                return found
            fewest = min(fewest, missing, key=len)
    shape = " x ".join(map(str, tensors[fewest[0]].shape)) or "1"
    raise OtherModel(f"{file.name} is of another model: it has no {fewest[0]} of {shape}, as the script's has")


def _holders(content: Mapping[str, Any]) -> Iterator[Tensors]:
    """The file itself, or one of its parts: {"model": ..., "optimizer": ...}."""
    for holder in (content, *content.values()):
        if isinstance(holder, Mapping):
            named = ((_plain(str(name)), value) for name, value in holder.items())
            yield {name: value for name, value in named if isinstance(value, torch.Tensor)}


def _prefixes(saved: Tensors, name: str) -> list[str]:
    """What stands before the names of the model in a file: DDP, Lightning and others put something there."""
    ending = [key for key in saved if key == name or key.endswith(f".{name}")]
    return sorted((key.removesuffix(name) for key in ending), key=len)
