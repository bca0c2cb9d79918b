"""The ends of what a job may say: the last value that is taken, and the first that is not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from small_world import job

from planner.inputs.job.schema import Constraints, Job, Network, Run
from planner.inputs.job.target import Convergence, TrainingAmount


def accepts(model: Any, **values: object) -> bool:
    try:
        model.model_validate(values)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("model", "key", "last", "too_much"),
    [
        (Constraints, "nodes", "1..1024", "1..1025"),
        (Constraints, "confidence", 0.999, 0.9991),
        (Constraints, "confidence", 0.5, 0.499),
        (Constraints, "confidence", "99.9 %", "99.95 %"),
        (Constraints, "regions", ["r"] * 100, ["r"] * 101),
        (Constraints, "regions", ["r"], []),
        (Constraints, "instance_types", ["g"] * 100, ["g"] * 101),
        (Constraints, "instance_types", ["g"], []),
        (Constraints, "instance_types", ["g" * 4096], ["g" * 4097]),
        (Constraints, "instance_types", ["g"], [""]),
        (Constraints, "on_demand_base", 0, -1),
        (Constraints, "quotas", {"spot": {"g": 0}}, {"spot": {"g": -1}}),
        (Constraints, "quotas", {"on_demand": {"p": 0}}, {"on_demand": {"p": -1}}),
        (Run, "budget_emails", ["me@example.org"] * 10, ["me@example.org"] * 11),
        (Run, "command", ["a"] * 600, ["a"] * 1001),
        (Run, "command", ["a" * 2996], ["a" * 2997]),  # with its quotes and brackets 3,000 characters
        (Run, "id", "a" * 8, "a" * 9),
        (Network, "subnets", ["subnet-0123456789abcdef0"] * 100, ["subnet-0123456789abcdef0"] * 101),
        (TrainingAmount, "epochs", 1e9, 1.1e9),
        (TrainingAmount, "epochs", 1e-6, 0.9e-6),
        (Convergence, "runs", [{"batch": 1, "epochs": 1}] * 1000, [{"batch": 1, "epochs": 1}] * 1001),
        (Convergence, "runs", [{"batch": 2**24, "epochs": 1}], [{"batch": 2**24 + 1, "epochs": 1}]),
    ],
)
def test_the_last_value_is_taken_and_the_next_is_not(model: Any, key: str, last: object, too_much: object) -> None:
    assert accepts(model, **{key: last})
    assert not accepts(model, **{key: too_much})


def test_a_base_must_leave_a_spot_node() -> None:
    assert accepts(Constraints, nodes="1..4", on_demand_base=3)
    assert not accepts(Constraints, nodes="1..4", on_demand_base=4)
    assert accepts(Constraints, nodes="1..4", on_demand_base=4, spot="never")
    assert accepts(Constraints, nodes="1..1024", on_demand_base=1023)
    assert not accepts(Constraints, nodes="1..1024", on_demand_base=1025, spot="never")


def test_falling_back_needs_a_deadline() -> None:
    assert accepts(Constraints, on_demand_fallback=True, deadline="3h")
    assert not accepts(Constraints, on_demand_fallback=True)


def test_batches_are_at_most_two_to_the_24() -> None:
    assert job(global_batch=f"1..{2**24}").workload.global_batch.high == 2**24
    with pytest.raises(ValidationError, match="beyond what scav searches"):
        job(global_batch=f"1..{2**24 + 1}")
    with pytest.raises(ValidationError, match="reference_batch"):
        job(target={"samples": 10, "reference_batch": 2**24 + 1})


def test_name_and_run_id_together_are_at_most_46_letters() -> None:
    document = job().model_dump(by_alias=True, mode="json", exclude_none=True)
    units = {"global_batch": "4..4", "target": {"samples": 36000, "reference_batch": 4}}
    document = {"workload": {**document["workload"], **units}}
    assert accepts(Job, **document, name="a" * 38, run={"id": "b" * 8})
    assert not accepts(Job, **document, name="a" * 39, run={"id": "b" * 8})
    assert accepts(Job, **document, name="a" * 39, run={"id": "b" * 7})


def test_spot_always_needs_checkpoints() -> None:
    with pytest.raises(ValidationError, match="without one a lost node loses the run"):
        job({"spot": "always"}, checkpoint_bytes=0)
    assert job({"spot": "auto"}, checkpoint_bytes=0).workload.checkpoint_bytes_or_default == 0


def test_what_is_left_out_follows_from_the_parameters() -> None:
    # A thousand parameters: gradients of 4 bytes each; Adam keeps 8 bytes beside each weight of 4.
    plain = job(checkpoint_bytes=None).workload
    assert (plain.gradient_bytes_or_default, plain.optimizer_state_bytes) == (4000.0, 8000.0)
    assert plain.checkpoint_bytes_or_default == 12_000.0
    states = {name: job(optimizer=name).workload.optimizer_state_bytes for name in ("sgd", "momentum", "lion", "adam")}
    assert states == {"sgd": 0.0, "momentum": 4000.0, "lion": 4000.0, "adam": 8000.0}
    assert job(gradient_bytes="2kB").workload.gradient_bytes_or_default == 2000.0


def test_defaults() -> None:
    limits = Constraints()
    assert (limits.confidence, limits.regions, limits.instance_types) == (0.95, ("us-east-1",), ("*",))
    assert (limits.nodes.low, limits.nodes.high, limits.spot) == (1, 16, "auto")
    assert (limits.on_demand_base, limits.on_demand_fallback) == (None, False)
    assert (limits.quotas.on_demand.g, limits.quotas.spot.p) == (None, None)
    assert Run().id == "1"


def test_epochs_are_passes_over_the_data() -> None:
    assert job(target={"epochs": 2.5, "reference_batch": 4}).workload.target_samples == 2500
    assert job(target={"samples": 70, "reference_batch": 4}).workload.target_samples == 70
