"""Each part of a sharded step's formula, in seconds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from planner.models.sharded_step_time.formula import NAMES, _Parts, _values, to_theta, to_values
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.traced import Traced

VALUES = {
    "gemm": 0.5,
    "elementwise": 2.0,
    "attention": 1.0,
    "scores": 3.0,
    "host": 0.01,
    "latency": 1e-4,
    "link": 0.8,
    "network": 0.5,
    "overlap": 1.0,
    "optimizer": 1.0,
    "fixed": 0.01,
    "low_precision": 0.5,
}
ROUND: dict[str, float] = {
    "half_flops": 1e14,
    "matmul_flops": 1e14,
    "memory_bytes_per_second": 1e12,
    "link_bytes_per_second": 1e11,  # of which 8e10 are reached
    "network_bytes_per_second": 1e10,  # of which 5e9 are
    "domain": 8.0,
}
TWO_GPUS: dict[str, float] = {
    "layers": 24.0,
    "width": 1000.0,
    "heads": 10.0,
    "sequence_length": 100.0,  # 400 tokens of 4 samples
    "vocabulary": 10_000.0,
    "block_parameters": 1e7,
    "embedding_copies": 1.0,
    "tensor": 2.0,
    "pipeline": 1.0,
    "virtual_stages": 1.0,
    "context": 1.0,
    "data": 1.0,
    "shards": 1.0,
    "gathered_bytes": 0.0,
    "synchronised_bytes": 0.0,
    "replica_bytes": 0.0,
    "update_shards": 1.0,
    "micro_batch": 4.0,
    "accumulation": 1.0,
    "recomputed": 0.0,
    "passes": 3.0,
    "trained_share": 1.0,
    "dequantised": 0.0,
    "flash": 1.0,
    "attention_power": 0.5,
    "split_sequence": 1.0,
    "fused": 0.0,
    "exposed_tensor": 1.0,
}
THETA = to_theta(np.array([VALUES[name] for name in NAMES]))


def parts(*, matmul_flops: float = 1e14, **changes: float) -> _Parts:
    columns = {name: np.array([value]) for name, value in {**TWO_GPUS, **changes}.items()}
    return _Parts(_values(THETA, False), Layout(**columns), Hardware(**{**ROUND, "matmul_flops": matmul_flops}))


def one(found: Traced) -> float:
    return float(np.broadcast_to(found.value, 1)[0])


def test_values_and_coordinates_are_each_others_inverse() -> None:
    assert to_values(THETA) == pytest.approx([VALUES[name] for name in NAMES])


def test_matrix_products_of_a_layer() -> None:
    assert one(parts().linear()) == pytest.approx(3 * 2 * 1e7 * 400 / 2 / 5e13)  # 0.24 ms
    assert one(parts(recomputed=1.0).linear()) == pytest.approx(0.32e-3)
    # Units four times as fast, of which the square root is seen.
    assert one(parts(matmul_flops=4e14).linear()) == pytest.approx(0.12e-3)


def test_attention_fused_or_by_products_and_scores() -> None:
    flops = 3 * 4 * 100 * 1000 * 400 / 2  # 0.24 G
    rate = 312e12 * 0.45 * (1e14 / 312e12) ** 0.5
    assert one(parts().attend()) == pytest.approx(0.5 * flops / rate)
    scores = 3 * 5 * 10 * 100 * 200  # 3 MB, three times
    assert one(parts(flash=0.0).attend()) == pytest.approx(flops / 5e13 + 3 * scores / 1e12)


def test_norms_are_divided_or_on_every_gpu() -> None:
    moved = 2 * 3 * 400 * 1000 / 1e12  # seconds of a byte per token and width
    assert one(parts().elementwise()) == pytest.approx(moved * 17)
    assert one(parts(split_sequence=0.0).elementwise()) == pytest.approx(moved * (10 + 24 / 2))
    assert one(parts(fused=1.0).elementwise()) == pytest.approx(moved * 17 * 0.4)
    assert one(parts(tensor=1.0, split_sequence=0.0).elementwise()) == pytest.approx(moved * 34)


def test_weights_are_read_and_gradients_written() -> None:
    assert one(parts().weights()) == pytest.approx(6 * 1e7 / 2 / 1e12)
    assert one(parts(dequantised=1.0).weights()) == pytest.approx((6 + 7.5) * 1e7 / 2 / 1e12)


def test_all_reduces_of_a_layer_that_is_cut() -> None:
    each = 1e-4 + 2 * 0.5 * 2 * 400 * 1000 / 8e10  # 0.11 ms
    assert one(parts().layer_tensor()) == pytest.approx(4 * each)
    assert one(parts(recomputed=1.0).layer_tensor()) == pytest.approx(6 * each)
    assert one(parts(exposed_tensor=0.5).layer_tensor()) == pytest.approx(2 * each)


def test_gathering_within_a_domain_and_beyond_it() -> None:
    inside = parts(shards=4.0, gathered_bytes=8.0)
    assert one(inside.gather(1e7)) == pytest.approx(0.75 * 8 * 1e7 / 2 / 8e10 + 3 * 2 * 1e-4)
    assert one(inside.gather(1e7, hops=0.0)) == pytest.approx(3e7 / 8e10)
    # 8 shards of 2 GPUs each: the four in a domain share its cards, 4 x 5e9.
    beyond = parts(shards=8.0, gathered_bytes=8.0)
    assert one(beyond.gather(1e7)) == pytest.approx(7 / 8 * 8 * 1e7 / 2 / 2e10 + 3 * 3 * 1e-4)
    assert one(parts(shards=4.0).gather(1e7)) == 0.0


def test_stages_send_forward_and_backward() -> None:
    assert one(parts(pipeline=2.0).sends()) == pytest.approx(2 * 2 * 400 * 1000 / 2 / 8e10 + 4e-4)
    assert one(parts().sends()) == 0.0


def test_output_layer_and_loss() -> None:
    words = 10_000 * 400 / 2
    assert one(parts().head()) == pytest.approx(2 * 3 * 1000 * words / 5e13 + 2 * 16 * words / 1e12)


def test_gradients_of_all_copies_and_of_replicas_of_shards() -> None:
    parameters = (24 * 1e7 + 1e7) / 2  # 125 M
    copies = parts(data=4.0, synchronised_bytes=8.0)
    assert one(copies.sync()) == pytest.approx(0.75 * 8 * parameters / 8e10 + 2 * 2 * 1e-4)
    replicas = parts(data=4.0, shards=2.0, replica_bytes=8.0)
    assert one(replicas.sync()) == pytest.approx(0.5 * 8 * parameters / 2 / 5e9)
    adapters = parts(data=4.0, synchronised_bytes=8.0, trained_share=0.01)
    assert one(adapters.sync()) == pytest.approx(0.75 * 8 * parameters / 100 / 8e10 + 4e-4)


def test_the_update_of_what_is_trained_on_each_gpu() -> None:
    seconds = 30 * 125e6 / 1e12
    assert one(parts().update()) == pytest.approx(seconds)
    assert one(parts(trained_share=0.1).update()) == pytest.approx(seconds / 10)
    assert one(parts(update_shards=4.0).update()) == pytest.approx(seconds / 4)
    # Of two stages the fuller end has half of the layers and one embedding.
    assert one(parts(pipeline=2.0).update()) == pytest.approx(30 * (120e6 + 10e6) / 2 / 1e12)
    assert one(parts(embedding_copies=2.0).update()) == pytest.approx(30 * (240e6 + 20e6) / 2 / 1e12)
