"""From a `config.json` to the values of a job file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from planner.errors import InputError
from planner.inputs.huggingface.families import LONGEST_ASSUMED, Configuration, shape_of
from planner.inputs.huggingface.transformer import Transformer
from planner.inputs.job.draft import KnownValue, job_name
from planner.units import written_bytes, written_flop

_RECIPE = "usual, set what your recipe allows"


class DescribedModel(NamedTuple):
    """What a configuration says of training its model."""

    name: str
    kind: str
    sample: str  # what one is, in a sentence
    values: tuple[KnownValue, ...]
    transformer: Mapping[str, str] | None = None  # its shape as keys of the job file; the rest follows from that


def described_model(text: str, *, file: str, sequence_length: int | None = None) -> DescribedModel:
    configuration = Configuration(_keys(text, file), file, sequence_length)
    shape = shape_of(configuration)
    kind = str(configuration.keys["model_type"])
    sample = "an image" if kind == "vit" else f"a sequence of {shape.tokens:,} tokens"
    keys = _decoder(configuration, shape)
    return DescribedModel(
        name=job_name(_name(configuration, kind)),
        kind=kind,
        sample=f"A sample is {sample}{_why_shorter(configuration, shape)}.",
        values=(*([] if keys else _sizes(shape)), *_recipe()),
        transformer=keys,
    )


def _decoder(configuration: Configuration, shape: Transformer) -> dict[str, str] | None:
    """None of what `workload.transformer` cannot say: encoders, images, other heads, heads of a width of their own."""
    heads = configuration.keys.get("n_head") or configuration.keys.get("num_attention_heads")
    is_decoder = shape.logits > 0 and shape.final_norm and not shape.patch_weights
    if not is_decoder or not isinstance(heads, int) or shape.query_width != shape.width or shape.width % heads:
        return None
    each = shape.width // heads
    longest = configuration.keys.get("max_position_embeddings") or configuration.keys.get("n_positions")
    tied = shape.head_parameters == 0
    keys: dict[str, object] = {
        "layers": shape.layers,
        "width": shape.width,
        "heads": heads,
        "key_value_heads": shape.key_width // each,
        "feed_forward_width": shape.mlp_width,
        "vocabulary": shape.logits,
        "sequence_length": shape.tokens,
        "longest_sequence": longest,
        "tied_embeddings": str(tied).lower(),
        "gated": str(shape.gated).lower(),
    }
    return {key: str(value) for key, value in keys.items() if value is not None}


def _keys(text: str, file: str) -> Mapping[str, object]:
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("is no JSON: --model takes the config.json of a Hugging Face model", file=file) from None
    if not isinstance(keys, dict):
        raise InputError("is no configuration: --model takes the config.json of a Hugging Face model", file=file)
    return keys


def _name(configuration: Configuration, kind: str) -> str:
    """Of the model, where the file says one."""
    said = configuration.keys.get("_name_or_path")
    last = said.rstrip("/").rpartition("/")[2] if isinstance(said, str) else ""
    return last if last.strip(".") else kind


def _why_shorter(configuration: Configuration, shape: Transformer) -> str:
    allowed = configuration.keys.get("max_position_embeddings") or configuration.keys.get("n_positions")
    if configuration.sequence_length or shape.tokens != LONGEST_ASSUMED or allowed == shape.tokens:
        return ""
    return f": the model may read {allowed:,}, few train on that; `--sequence-length` says another length"


def _sizes(shape: Transformer) -> list[KnownValue]:
    flops = f"6 x {shape.tokens:,} tokens x weights that multiply, and attention"
    kept = "what transformers keeps under bf16 autocast, fused attention"
    return [
        KnownValue(key="flops_per_sample", text=written_flop(shape.flops_per_sample), origin="derived", how=flops),
        KnownValue(
            key="parameters", text=str(shape.parameters), origin="derived", how="counted from the configuration"
        ),
        KnownValue(
            key="activation_bytes_per_sample",
            text=written_bytes(shape.activation_bytes_per_sample),
            origin="derived",
            how=kept,
        ),
    ]


def _recipe() -> list[KnownValue]:
    return [
        KnownValue(key="global_batch", text="32..4096", origin="given", how=_RECIPE),
        KnownValue(key="precision", text="bf16", origin="given", how=_RECIPE),
        KnownValue(key="optimizer", text="adamw", origin="given", how=_RECIPE),
    ]
