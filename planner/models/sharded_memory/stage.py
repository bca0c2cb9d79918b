"""What a GPU of one pipeline stage holds at each moment of a step, part by part, as columns.

With P parameters of the stage on this GPU (divided by tensor parallelism), N shards, bytes per trained parameter:

    states      weights   gradients   optimizer (AdamW)     sharded by N
    fp32        4         4           8                     ddp    nothing
    autocast    4 + 2     4           8                     zero1  optimizer
    pure        2         2           4                     zero2  optimizer, gradients
    master      2         2 + 4       8 + 4                 fsdp, hsdp  all; hsdp within a node

Gathered weights: FSDP has the ends and two blocks whole, and the gradients of one block before they are reduced. With
pipeline stages it keeps the whole stage gathered (`reshard_after_forward=False`), and its gradients in fp32. Where its
parameters are flat (FSDP's first version), frozen weights that share one with adapters get gradients, too, and while
they are accumulated without being reduced they are whole. Frozen
weights are in half precision; for qlora those of the blocks take 0.5625 bytes (nf4 with an fp32 scale per 64 weights),
0.516 double quantized, and one matrix at a time is unpacked. DDP's buckets hold every gradient a second time.

Gradients exist from the backward pass to the step, unless they are accumulated or kept in fp32 copies: then always.
Stages have about equal matrix products, the output layer's among them. Stage i of p keeps min(p - i, accumulation)
micro-batches at once (one forward, one backward). Logits take the bytes of LOGIT_BYTES each at the loss. The step of an
optimizer makes one more copy of what it steps over (foreach), unless it is fused. Loading from a full state takes half
precision twice: 2 P (1 + 1/N).

What is assumed: equal blocks, the sequence split with tensor parallelism, no offloading, no optimizer in the backward
pass, no context parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.columns import Floats
from planner.inputs import OPTIMIZER_STATE_BYTES, TransformerShape
from planner.models.sharded_memory import architecture
from planner.models.sharded_memory.rows import StrategyRows
from planner.models.sharded_memory.strategy import Strategy

# Bytes per logit when the loss is computed. eager: 2 in half precision; in fp32 a copy, log-softmax and its gradient in
# turn, two at once, and 2 for the gradient. half: Lightning's Fabric hands logits over in fp32 and keeps no others; 4
# for log-softmax. hf: accelerate makes the output fp32, Hugging Face shifts it into a copy, and both stay. fused:
# logits and gradient in half precision, log-softmax only per row. chunked: 2, and what eager has beside in an eighth of
# the rows (torchtune's chunks).
LOGIT_BYTES = {"eager": 12.0, "half": 8.0, "hf": 24.0, "fused": 4.0, "chunked": 2.0 + 10.0 / 8}
PARALLEL_LOGIT_BYTES = 10.0  # of master trainers, in parallel over the vocabulary: no second copy in half precision
NF4_BYTES, DOUBLE_QUANTIZED_BYTES = 0.5625, 0.516
_FINAL_NORM = 4.0  # bytes per token and width: its input and output


class _StateBytes(NamedTuple):
    """Per trained parameter."""

    weight: float
    cast: float
    gradient: float
    optimizer_scale: float
    optimizer_extra: float
    reduced: float  # of a block's gradients before they are sharded
    step: float  # what the optimizer's step makes


_STATES = {
    "fp32": _StateBytes(4, 0, 4, 1.0, 0, 8, 4),
    "autocast": _StateBytes(4, 2, 4, 1.0, 0, 6, 4),
    "pure": _StateBytes(2, 0, 2, 0.5, 0, 4, 2),
    "master": _StateBytes(2, 0, 6, 1.0, 4, 6, 0),
}


class PartColumns(NamedTuple):
    """Bytes on one GPU at one moment, row by row."""

    weights: Floats
    gathered: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    load: Floats

    @property
    def total(self) -> Floats:
        weights, gathered, gradients, optimizer, activations, logits, load = self
        return weights + gathered + gradients + optimizer + activations + logits + load


class Stage:
    """One pipeline stage on one GPU, of rows with equally many stages."""

    def __init__(self, shape: TransformerShape, rows: StrategyRows, index: int, stages: int) -> None:
        self.shape, self.rows, self.index, self.stages = shape, rows, index, stages
        self.job, t = rows.job, rows.tensor_parallel
        self.first, self.last = index == 0, index == stages - 1
        counts = architecture.parameters(shape)
        self.layers = _layers(shape, stages)[index]
        self.block = counts.block / t
        self.all = counts.of(self.layers, first=self.first, last=self.last, alone=stages == 1) / t
        self.ends = self.all - self.layers * self.block
        adapter = shape.adapter_parameters(self.job.lora_rank) / t
        self.trained_block = adapter if self.job.frozen else self.block
        self.trained = self.layers * adapter if self.job.frozen else self.all
        self.bytes = _STATES[self.job.states]
        self.half = 4.0 if self.job.states == "fp32" else 2.0
        self.tokens = rows.micro_batch * float(shape.sequence_length)
        self.shards, self.is_gathered = rows.shards, rows.is_gathered
        self.splits_gradients = rows.shards_by("zero2", "fsdp", "hsdp")
        self.is_flat = rows.is_gathered & (self.job.flat_parameters and self.job.training != "qlora")
        adapted = self.layers * self.block if self.job.frozen else self.all  # the ends have no adapters
        self.has_gradient = np.where(self.is_flat, adapted, self.trained)

    def moments(self) -> Iterator[tuple[str, PartColumns]]:
        """What may be the fullest."""
        if self.last:
            yield "loss", self._at_loss()
        yield "first backward block", self._in_backward()
        yield "end of backward", self._after_backward()
        yield "optimizer step", self._at_step()
        if self.job.load == "full":
            yield "loading", self._at_load()

    def _parts(self, **parts: Floats) -> PartColumns:
        nothing = np.zeros(len(self.rows))
        return PartColumns(*(parts.get(name, nothing) for name in PartColumns._fields))

    def _at_loss(self) -> PartColumns:
        logits = self._logit_bytes() * self.tokens * self.shape.vocabulary / self.rows.tensor_parallel
        return self._parts(
            weights=self._weights(cast=True),
            gathered=self._gathered(),
            gradients=self._kept_gradients(),
            optimizer=self._optimizer(),
            activations=self._kept_activations(),
            logits=logits,
        )

    def _in_backward(self) -> PartColumns:
        """Of the last block: everything is still kept, and its own is there again if it is recomputed."""
        again = architecture.block_bytes_per_token(self.shape, self.rows)
        again = again - architecture.checkpoint_bytes_per_token(self.shape, self.rows)
        block = architecture.backward_bytes_per_token(self.shape, self.rows)
        block = block + np.where(self.rows.recomputes("full"), again, 0.0)
        has_head = self.last and not self.job.frozen
        head = self.ends * self.bytes.gradient / self._gradient_shards * has_head
        first_gradients = np.minimum(head + self.trained_block * self.bytes.gradient, self._gradients())
        gradients = np.maximum(self._kept_gradients(), self._buckets() + first_gradients) + self._unreduced()
        return self._parts(
            weights=self._weights(cast=True),
            gathered=self._gathered(),
            gradients=gradients,
            optimizer=self._optimizer(),
            activations=self._kept_activations() + block * self.tokens,
        )

    def _after_backward(self) -> PartColumns:
        return self._parts(
            weights=self._weights(cast=True),
            gathered=self._gathered(),
            gradients=self._buckets() + self._gradients() + self._unreduced(),
            optimizer=self._optimizer(),
        )

    def _at_step(self) -> PartColumns:
        step = 0.0 if self.job.fused_optimizer else self.bytes.step
        gradients = self.bytes.gradient * self.has_gradient / self._gradient_shards
        return self._parts(
            weights=self._weights(cast=False),
            gradients=self._buckets() + gradients,
            optimizer=self._optimizer() + step * self.trained / self.shards,
        )

    def _at_load(self) -> PartColumns:
        """Of what is gathered; the others load what they hold anyway."""
        whole = np.where(self.is_gathered, self.half * self.all, 0.0)
        return self._parts(weights=whole / self.shards, load=whole)

    def _logit_bytes(self) -> float:
        if self.job.states == "master":
            return PARALLEL_LOGIT_BYTES
        if self.job.compiled and self.shape.loss == "chunked":
            return 2.0
        return LOGIT_BYTES[self.shape.loss]

    def _weights(self, *, cast: bool) -> Floats:
        shards = np.where(self.is_gathered, self.shards, 1)
        bytes_cast = np.where(self.is_gathered, 0.0, self.bytes.cast if cast else 0.0)
        trained = (self.bytes.weight / shards + bytes_cast) * self.trained
        return trained + (self._frozen_bytes() / shards if self.job.frozen else 0.0)

    @property
    def _quantized(self) -> float:
        return DOUBLE_QUANTIZED_BYTES if self.job.double_quantized else NF4_BYTES

    def _frozen_bytes(self) -> Floats:
        if self.job.training != "qlora":
            return self.half * self.all
        return self.half * self.ends + self._quantized * self.layers * self.block

    def _gathered(self) -> Floats:
        blocks = self.layers if self.stages > 1 else min(2, self.layers)
        each = self._quantized if self.job.training == "qlora" else self.half
        whole = self.half * self.ends + each * blocks * self.block
        unpacked = self.half * self.shape.width * self.shape.feed_forward_width / self.rows.tensor_parallel
        return np.where(self.is_gathered, whole, 0.0) + unpacked * (self.job.training == "qlora")

    @property
    def _gradient_shards(self) -> Floats:
        return np.where(self.splits_gradients, self.shards, 1.0)

    def _gradients(self) -> Floats:
        """Of the whole stage, as they stand at the end of the backward pass."""
        unreduced = self.is_flat & (self.rows.accumulation > 1)
        return self.bytes.gradient * self.has_gradient / np.where(unreduced, 1.0, self._gradient_shards)

    def _kept_gradients(self) -> Floats:
        """Before the backward pass, from micro-batches before."""
        kept = (self.rows.accumulation > 1) | (self.job.states == "master")
        return self._buckets() + np.where(kept, self._gradients(), 0.0)

    def _buckets(self) -> Floats:
        """DDP's, from the start; `master` trainers reduce their own fp32 copies."""
        ddp = self.rows.shards_by("ddp") & (self.rows.data_parallel > 1)
        has_buckets = (ddp | self.rows.shards_by("zero1")) & (self.job.states != "master")
        return np.where(has_buckets, self.bytes.gradient * self.trained, 0.0)

    def _unreduced(self) -> Floats:
        """Gradients that are not sharded yet."""
        each = self.bytes.reduced * np.where(self.is_flat, self.block, self.trained_block)
        if self.stages > 1:
            each = np.where(self.is_gathered, 4.0 * self.trained, each)
        return np.where(self.splits_gradients, each, 0.0)

    def _optimizer(self) -> Floats:
        each = OPTIMIZER_STATE_BYTES[self.job.optimizer] * self.bytes.optimizer_scale + self.bytes.optimizer_extra
        return each * self.trained / self.shards

    def _kept_activations(self) -> Floats:
        """Of all micro-batches that are under way."""
        per_token = np.where(
            self.rows.recomputes("full"),
            architecture.checkpoint_bytes_per_token(self.shape, self.rows),
            architecture.block_bytes_per_token(self.shape, self.rows),
        )
        under_way = np.minimum(self.stages - self.index, self.rows.accumulation)
        ends = _FINAL_NORM * self.shape.width / self.rows.tensor_parallel * self.last
        return self.tokens * (under_way * self.layers * per_token + ends)


def state_bytes(shape: TransformerShape, job: Strategy) -> float:
    """Weights, gradients and optimizer state of a whole model, wherever they are kept."""
    model, each = shape.counted.parameters, _STATES[job.states]
    trained = shape.layers * shape.adapter_parameters(job.lora_rank) if job.frozen else model
    optimizer = OPTIMIZER_STATE_BYTES[job.optimizer] * each.optimizer_scale + each.optimizer_extra
    frozen = {"full": 0.0, "lora": 2.0, "qlora": DOUBLE_QUANTIZED_BYTES}[job.training] * model
    return frozen + (each.weight + each.gradient + optimizer) * trained


def fullest_stages(shape: TransformerShape, stages: int) -> list[int]:
    """Both ends, and of those between, the first of each number of layers: it has most micro-batches under way."""
    layers = _layers(shape, stages)
    between = {layers[index]: index for index in range(stages - 2, 0, -1)}
    return sorted({0, stages - 1, *between.values()})


def _layers(shape: TransformerShape, stages: int) -> list[int]:
    counts = architecture.parameters(shape)
    return layers_of_stages(shape.layers, stages, (counts.head or counts.embedding) / counts.block)


def layers_of_stages(layers: int, stages: int, head: float) -> list[int]:
    """Blocks of each stage, at least one; `head` is the output layer's work in blocks, which the last stage has."""
    ends = [min(round((layers + head) * (stage + 1) / stages), layers) for stage in range(stages - 1)]
    ends = [max(min(end, layers - stages + 1 + stage), stage + 1) for stage, end in enumerate(ends)]
    return [end - start for start, end in zip([0, *ends], [*ends, layers], strict=True)]
