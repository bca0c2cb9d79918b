"""The physical form of a sharded step: what the data sheet says each part takes, and how the parts add up.

L layers, d wide, s tokens long, V words, P_l parameters of a layer; t, p, c, D degrees of tensor, pipeline, context and
data parallelism; A micro-steps of `tok` tokens; S_q(x, y) = (x^q + y^q)^(1/q), between the sum and the longer of both.

    passes  = 3 + recomputed share (2 + that where weights are frozen: they need no gradient)
    linear  = passes 2 P_l tok/t / (peak gemm)
    attend  = flash: passes 2 s d tok/t / (rate attention)      eager: matrix products, and five passes over the scores
    element = elementwise passes tok d (34/t, or 10 + 24/t where norms are not divided) / memory
    weights = 6 P_l/t / memory
    tensor  = n (latency log2 t + 2 (t-1)/t 2 tok d / B)         n = 4 all-reduces, 6 with full recomputation
    layer   = S_4(linear + attend + element + weights + tensor, host passes/3)       kernels cannot start any faster
    gather  = (S-1)/S bytes P_l/t / B + 3 latency log2 S        over S shards
    stage   = L/p S_k(layer, gather) + sends                     k = 1 + overlap
    last    = stage + head: the output layer and the loss
    sync    = (D-1)/D bytes P_stage / B + 2 latency log2 D
    step    = (A-1) last + S_k(last, sync) + (p-1)/v stage + update + fixed

Only the last micro-step can hide the sync. With t = p = c = 1, DDP and A = 1 this is (work^k + sync^k)^(1/k), and then
the optimizer's update. A ring whose members share a node shares its network cards, too: B is that of the link within a
domain, else min(members per domain x network, link).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from planner.columns import Floats
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.traced import Number, Traced, chosen, constant, joined, smaller

NAMES = (
    "gemm",  # share of the peak that matrix products reach
    "elementwise",  # traffic of norms, activations and residuals, in units of what a layer keeps
    "attention",  # how much longer attention takes than a well-known kernel on an A100
    "scores",  # traffic of attention that is not fused, in units of five passes over its scores
    "host",  # seconds to start the kernels of a layer's forward and backward pass
    "latency",  # seconds of a hop
    "link",  # share of its bandwidth that collectives reach
    "network",  # the same between domains
    "overlap",  # how much of the shorter of work and communication hides behind the longer
    "optimizer",  # traffic of the update, in units of 30 bytes a parameter
    "fixed",  # seconds of a step that nothing else accounts for
    "low_precision",  # power of the peak's gain in fp8 that is seen
)
MOST_GEMM = 0.85  # beyond which no matrix product was seen; free logarithms found 1.08 of the peak
_BOUNDS = {"gemm": MOST_GEMM, "link": 1.0, "network": 1.0, "low_precision": 1.0}
_BOUND = np.array([_BOUNDS.get(name, np.inf) for name in NAMES])
_BOUNDED = np.isfinite(_BOUND)

_FLASH_FLOPS = 312e12 * 0.45  # of an A100
_A100_FLOPS = 312e12
_HOST_POWER = 4.0
_UPDATE_BYTES = 30.0
_SCORE_PASSES = 5.0
_FUSED_ELEMENTWISE = 0.4


def to_values(theta: Floats) -> Floats:
    """Efficiencies are logistic below their bounds, everything else is a logarithm."""
    limit = np.where(_BOUNDED, _BOUND, 1.0)
    return np.where(_BOUNDED, limit * expit(theta), np.exp(np.where(_BOUNDED, 0.0, theta)))


def to_theta(values: Floats) -> Floats:
    limit = np.where(_BOUNDED, _BOUND, 1.0)
    share = np.where(_BOUNDED, values / limit, 0.5)
    return np.where(_BOUNDED, logit(share), np.log(np.where(_BOUNDED, 1.0, values)))


class Seconds(NamedTuple):
    """A step of A micro-steps takes (A - 1) `again` + `once`; `work` is what a GPU that never waits needs of both."""

    again: Traced
    once: Traced
    work_again: Traced
    work_once: Traced


@dataclass(frozen=True, slots=True)
class _Values:
    gemm: Traced
    elementwise: Traced
    attention: Traced
    scores: Traced
    host: Traced
    latency: Traced
    link: Traced
    network: Traced
    overlap: Traced
    optimizer: Traced
    fixed: Traced
    low_precision: Traced


def seconds(theta: Floats, layout: Layout, hardware: Hardware, *, slopes: bool = False) -> Seconds:
    """`slopes`: with the answer of each of them to the parameters."""
    values = _values(theta, slopes)
    parts = _Parts(values, layout, hardware)
    power, host_power = values.overlap + constant(1.0), constant(_HOST_POWER)
    compute, host = parts.layer_compute(), values.host * (parts.passes / 3.0)
    layers = layout.layers / layout.pipeline
    layer = joined(compute + parts.layer_tensor(), host, host_power)
    stage = joined(layer, parts.gather(layout.block_parameters), power) * layers + parts.sends()
    last = stage + parts.head() + parts.gather(parts.word_parameters, hops=0.0)
    waiting = stage * ((layout.pipeline - 1.0) / layout.virtual_stages)
    rest = parts.update() + values.fixed
    alone = joined(compute, host, host_power) * layers + parts.head()
    return Seconds(
        again=last, once=joined(last, parts.sync(), power) + waiting + rest, work_again=alone, work_once=alone + rest
    )


def slope_table(traced: Traced, count: int) -> Floats:
    """Shape (rows, parameters)."""
    table = np.zeros((count, len(NAMES)))
    for index, slope in traced.slopes.items():
        table[:, index] = slope
    return table


def _values(theta: Floats, slopes: bool) -> _Values:
    """With the derivative of each by its coordinate."""
    values = to_values(theta)
    steep = np.where(_BOUNDED, values * (1.0 - values / _BOUND), values)
    each = (
        Traced(value, {index: slope} if slopes else {})
        for index, (value, slope) in enumerate(zip(values.tolist(), steep.tolist(), strict=True))
    )
    return _Values(*each)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The terms, each in seconds."""

    values: _Values
    layout: Layout
    hardware: Hardware

    @property
    def passes(self) -> Number:
        return self.layout.passes + self.layout.recomputed

    @property
    def tokens(self) -> Number:
        return self.layout.micro_batch * self.layout.sequence_length / self.layout.context

    @property
    def word_parameters(self) -> Number:
        """Of embedding or output layer."""
        return self.layout.vocabulary * self.layout.width

    def products(self, flops: Number) -> Traced:
        """In half precision."""
        return constant(flops / self.hardware.half_flops).over(self.values.gemm)

    def traffic(self, moved: Number) -> Number:
        """Seconds to read or write so many bytes of the GPU's memory."""
        return moved / self.hardware.memory_bytes_per_second

    def layer_compute(self) -> Traced:
        return self.linear() + self.attend() + self.elementwise() + self.weights()

    def linear(self) -> Traced:
        flops = self.passes * 2.0 * self.layout.block_parameters * self.tokens / self.layout.tensor
        gain = np.log(self.hardware.matmul_flops / self.hardware.half_flops)
        half = self.products(flops)
        if not np.any(gain):
            return half
        faster = self.values.low_precision.lowering(gain)
        return half * faster.value + Traced(0.0, {index: half.value * slope for index, slope in faster.slopes.items()})

    def attend(self) -> Traced:
        layout = self.layout
        tokens = self.tokens / layout.tensor
        flops = self.passes * 4.0 * layout.sequence_length * layout.width * tokens
        rate = _FLASH_FLOPS * (self.hardware.half_flops / _A100_FLOPS) ** layout.attention_power
        scores = self.passes * _SCORE_PASSES * layout.heads * layout.sequence_length * tokens
        # A fused kernel leaves out the half of the pairs that lie in the future.
        fused = self.values.attention * (layout.flash * 0.5 * flops / rate)
        if np.all(np.asarray(layout.flash) == 1.0):
            return fused
        eager = 1.0 - layout.flash
        return fused + self.products(eager * flops) + self.values.scores * self.traffic(eager * scores)

    def elementwise(self) -> Traced:
        layout = self.layout
        per_token = 34.0 / layout.tensor + (1.0 - layout.split_sequence) * 10.0 * (1.0 - 1.0 / layout.tensor)
        fused = 1.0 - (1.0 - _FUSED_ELEMENTWISE) * layout.fused
        return self.values.elementwise * self.traffic(self.passes * self.tokens * layout.width * per_token * fused)

    def weights(self) -> Traced:
        """Read forward and backward, gradients written; where kept in four bits, written and read in sixteen, too."""
        layout = self.layout
        each = 2.0 * layout.passes + layout.dequantised * 2.5 * self.passes
        return constant(self.traffic(each * layout.block_parameters / layout.tensor))

    def layer_tensor(self) -> Traced:
        layout, t = self.layout, self.layout.tensor
        times = np.where(np.asarray(layout.recomputed) >= 1.0, 6.0, 4.0) * layout.exposed_tensor
        moved = 2.0 * (t - 1.0) / t * 2.0 * self.tokens * layout.width
        return self.values.latency * (times * np.log2(t)) + constant(times * moved).over(self.bandwidth(1.0, t))

    def gather(self, parameters: Number, hops: float = 3.0) -> Traced:
        """Of sharded weights, and the scattering of their gradients."""
        layout, shards = self.layout, self.layout.shards
        if not np.any(layout.gathered_bytes):
            return constant(0.0)
        moved = (shards - 1.0) / shards * layout.gathered_bytes * parameters / layout.tensor
        waits = hops * np.log2(shards) * (np.asarray(layout.gathered_bytes) > 0)
        return (
            constant(moved).over(self.bandwidth(layout.tensor * layout.context, shards)) + self.values.latency * waits
        )

    def sends(self) -> Traced:
        """Between stages, forward and backward."""
        layout = self.layout
        several = np.where(np.asarray(layout.pipeline) > 1, 2.0, 0.0)
        inner = layout.tensor * layout.context * layout.data
        moved = several * 2.0 * self.tokens * layout.width / layout.tensor
        return constant(moved).over(self.bandwidth(inner, layout.pipeline)) + self.values.latency * (2.0 * several)

    def head(self) -> Traced:
        layout = self.layout
        words = layout.vocabulary * self.tokens / layout.tensor
        return self.products(2.0 * layout.passes * layout.width * words) + self.values.elementwise * self.traffic(
            16.0 * words
        )

    @property
    def stage_parameters(self) -> Number:
        """Of the fuller end; a model in one piece has both ends."""
        layout = self.layout
        ends = np.where(np.asarray(layout.pipeline) > 1, 1.0, layout.embedding_copies)
        return (layout.layers * layout.block_parameters / layout.pipeline + ends * self.word_parameters) / layout.tensor

    def sync(self) -> Traced:
        layout, copies = self.layout, self.layout.data
        trained = self.stage_parameters * layout.trained_share
        everywhere = (copies - 1.0) / copies * layout.synchronised_bytes * trained
        waits = 2.0 * np.log2(copies) * (np.asarray(layout.synchronised_bytes) > 0)
        between = (1.0 - layout.shards / copies) * layout.replica_bytes * trained / layout.shards
        cards = self.values.network * self.hardware.network_bytes_per_second
        ring = constant(everywhere).over(self.bandwidth(layout.tensor * layout.context, copies))
        return ring + self.values.latency * waits + constant(between).over(cards)

    def update(self) -> Traced:
        moved = _UPDATE_BYTES * self.stage_parameters * self.layout.trained_share / self.layout.update_shards
        return self.values.optimizer * self.traffic(moved)

    def bandwidth(self, inner: Number, size: Number) -> Traced:
        """Of a ring of so many GPUs, neighbours that many GPUs apart."""
        hardware = self.hardware
        link = self.values.link * hardware.link_bytes_per_second
        members = np.maximum(np.floor(hardware.domain / np.asarray(inner)), 1.0)
        outside = smaller(self.values.network * (members * hardware.network_bytes_per_second), link)
        return chosen(np.asarray(inner * size) <= hardware.domain, link, outside)
