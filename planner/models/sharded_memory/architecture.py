"""Parameters of a transformer, and the bytes that its blocks keep for the backward pass.

Per token and block, d wide, k the width of all keys together, a feed-forward layer f wide, t GPUs in tensor parallel
with the sequence split between them, everything in half precision:

    inputs of the norms       4 d / t       + 4 d / t for RMS norms that are not fused (they keep fp32)
    inputs of linear layers   4 d           gathered, so they are not divided
    attention                 (4 d + 4 k) / t     queries, keys, values, output; eager: + 5 heads * length / t
    feed-forward              8 f / t gated, 4 f / t plain

which is 16 d + 8 f for a Llama block, and the 34 d of Korthikanti et al. (arXiv 2205.05198) less its dropout for a GPT
block. Autocast keeps the residual stream in fp32 and a cast copy for every linear layer: 18 d more if gated, 8 d if
plain, as `planner/inputs/huggingface/transformer.py` counts. A frozen linear layer does not keep its input; an adapter
with dropout keeps a copy and a mask of it, 3 d for each of two projections. bitsandbytes keeps all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.inputs import TransformerShape
from planner.models.sharded_memory.rows import StrategyRows

ADAPTED = 2  # projections of a block, queries and values: the default of peft and of litgpt
SCORE_BYTES = 5  # softmax and dropout of a score, its mask: arXiv 2205.05198, and 5.0 measured by ms-swift
SCORE_BACKWARD_BYTES = 8  # the softmax in fp32 and its gradient, of the block that is passed backward


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Of one block, and of the ends."""

    block: int
    embedding: int
    head: int  # 0 where it is the embedding's

    def of(self, layers: int, *, first: bool, last: bool, alone: bool) -> int:
        """Of a stage; with several stages a tied head is a second copy of the embedding."""
        head = self.head if alone else (self.head or self.embedding)
        return layers * self.block + first * self.embedding + last * head


def parameters(shape: TransformerShape) -> ParameterCounts:
    counted = shape.counted
    return ParameterCounts(counted.block_parameters, counted.embedding_parameters, counted.head_parameters)


def model_parameters(shape: TransformerShape) -> int:
    return parameters(shape).of(shape.layers, first=True, last=True, alone=True)


def block_bytes_per_token(shape: TransformerShape, rows: StrategyRows) -> Floats:
    """Kept by one block without recomputation."""
    d, f, t, strategy = shape.width, shape.feed_forward_width, rows.tensor_parallel, rows.job
    half = 2.0 if strategy.states == "fp32" else 1.0
    keeps_inputs = strategy.training != "lora"
    fused_norms = strategy.compiled or strategy.states == "master" or not shape.gated
    norms = (4 if fused_norms else 8) * d / t
    inputs = (4 if keeps_inputs else 2) * d
    attention = (4 * d + 4 * shape.key_width) / t
    product = (2 * f if keeps_inputs else 0) / t
    feed_forward = (6 if shape.gated else 2) * f / t + product
    if strategy.states == "autocast" and not strategy.frozen:
        # With the 4 d of norms that are not fused: 18 d, 8 d. FSDP's own mixed precision casts no residual.
        norms = norms + np.where(rows.is_gathered, 0.0, (14 if shape.gated else 8) * d / t)
    adapters = 3 * d * ADAPTED if strategy.frozen and strategy.lora_dropout else 0
    kept = half * (norms + inputs + attention + feed_forward + adapters)
    return np.asarray(kept + np.where(rows.recomputes("selective"), 0.0, SCORE_BYTES) * _scores(shape, rows))


def _scores(shape: TransformerShape, rows: StrategyRows) -> Floats:
    """Of eager attention, per token."""
    pairs = shape.heads * shape.sequence_length if shape.attention == "eager" else 0
    return np.asarray(pairs / rows.tensor_parallel)


def checkpoint_bytes_per_token(shape: TransformerShape, rows: StrategyRows) -> Floats:
    """What full recomputation keeps of a block: its input."""
    return np.asarray((4.0 if rows.job.states == "fp32" else 2.0) * shape.width / rows.tensor_parallel)


def backward_bytes_per_token(shape: TransformerShape, rows: StrategyRows) -> Floats:
    """Gradients of activations while one block is passed backward: of the residual and of the feed-forward layer."""
    half = 2.0 if rows.job.states == "fp32" else 1.0
    hidden = (2 if shape.gated else 1) * shape.feed_forward_width
    again = np.where(rows.recomputes("selective"), SCORE_BYTES, 0)  # scores that are computed again
    scores = (SCORE_BACKWARD_BYTES + again) * _scores(shape, rows)
    return np.asarray(half * (2 * shape.width + 2 * hidden) / rows.tensor_parallel + scores)
