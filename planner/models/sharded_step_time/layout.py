"""Columns of what the form of a sharded step takes: the model, how it is spread and trained, and the machines.

Every field is a number or a column of numbers: one job on one kind of machine has columns only where its
configurations differ, a benchmark that mixes models and machines has columns everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from planner.columns import Flags, Ints
from planner.models.sharded_step_time.traced import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the data sheet says of one GPU and its links. Bandwidths are per GPU and in one direction."""

    half_flops: Number  # dense peak of bf16 and fp16, as far as power allows it
    matmul_flops: Number  # the same of the precision that linear layers are computed in
    memory_bytes_per_second: Number
    link_bytes_per_second: Number  # between the GPUs of a domain
    network_bytes_per_second: Number  # its share of the node's network
    domain: Number  # GPUs that reach each other by the link: a node's, or a rack's

    def at(self, rows: Ints | Flags) -> Hardware:
        return _at(self, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Row i: one model, spread and trained in one way."""

    layers: Number
    width: Number
    heads: Number
    sequence_length: Number
    vocabulary: Number
    block_parameters: Number  # of one layer
    embedding_copies: Number  # 1 where the output layer shares the embedding's weights, else 2
    # How it is spread.
    tensor: Number
    pipeline: Number
    virtual_stages: Number
    context: Number
    data: Number
    shards: Number  # GPUs that share one copy of what is sharded
    gathered_bytes: Number  # moved per parameter and micro-step, where weights or gradients are sharded
    synchronised_bytes: Number  # moved per trained parameter and step between all copies
    replica_bytes: Number  # moved per sharded parameter and step between groups of shards
    update_shards: Number  # GPUs that share the optimizer's work on one copy
    # What a step computes.
    micro_batch: Number
    accumulation: Number
    recomputed: Number  # share of the forward pass that is computed again
    passes: Number  # 3: forward, gradients of inputs, gradients of weights; 2 where the weights are frozen
    trained_share: Number  # of the parameters
    dequantised: Number  # 1 where frozen weights are kept in four bits
    # Software.
    flash: Number  # 1 for fused attention, 0 where the scores of every pair are written to memory
    attention_power: Number  # how attention follows the GPU's peak: 0.5, or 0.8 for kernels written for it
    split_sequence: Number  # 1 where norms, too, are divided among the GPUs of tensor parallelism
    fused: Number  # 1 where a compiler fuses elementwise operations
    exposed_tensor: Number  # share of tensor parallel communication that is not hidden

    def __len__(self) -> int:
        return max(np.size(getattr(self, field.name)) for field in fields(self))

    @property
    def gpus(self) -> Number:
        return self.tensor * self.pipeline * self.context * self.data

    def at(self, rows: Ints | Flags) -> Layout:
        return _at(self, rows)


_Columns = TypeVar("_Columns", Hardware, Layout)


def _at(columns: _Columns, rows: Ints | Flags) -> _Columns:
    values = {field.name: getattr(columns, field.name) for field in fields(columns)}
    return type(columns)(**{name: value[rows] if np.ndim(value) else value for name, value in values.items()})
