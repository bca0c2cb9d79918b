"""Doubt about the job file's values is in the interval of a step, and the value that matters most is named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import CATALOG as SMALL
from small_world import ONE, catalog, job

from planner.columns import Z95, Quantiles
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.fields import CountRange
from planner.inputs.measurements import Measurement
from planner.models.configurations import Configurations
from planner.models.doubt import FACTORS, UNFUSED, Dependence, DoubtedSteps
from planner.models.fitted import FittedModels, fit_models
from planner.models.step_time.unprobed_types import COLD_START, RESIDUAL_SD
from planner.outside.input_files import load_plan_inputs
from planner.outside.store import load_catalog
from planner.plan.build import make_plan
from planner.plan.forecast import predict_one
from planner.plan.forecast_request import ForecastRequest
from planner.plan.schema import DoubtedInput
from planner.plan.wording import dependence
from planner.search.survey import take_survey

GPT2 = Path(__file__).parents[2] / "examples" / "gpt2-openwebtext"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]

# On the small world's GPU: 1 ms of a sample by its flops, 4 ms by the traffic of its activations, 4 ms to start.
BY_HAND = {"flops_per_sample": "45 GFLOP", "parameters": 1, "activation_bytes_per_sample": 4e-3 * 500e9 / 17.5}


def models_of(rows: tuple[Measurement, ...] = (), catalog: Catalog = SMALL, **workload: Any) -> FittedModels:
    return fit_models(job(**{"global_batch": "1..8192", **workload}), catalog, rows)


def sides(models: FittedModels, rows: Configurations) -> tuple[float, float]:
    """Squared logarithms that doubt adds, above and below."""
    plain, doubted = models.step_time.predict(rows).rows()[0], models.doubted_steps.predict(rows).rows()[0]
    assert doubted.p50 == plain.p50
    return _square(doubted.p95, doubted.p50) - _square(plain.p95, plain.p50), _square(
        doubted.p50, doubted.p05
    ) - _square(plain.p50, plain.p05)


def _square(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) ** 2


def on_one(gpu_batch: int, accumulation_steps: int = 1) -> Configurations:
    return Configurations.of(SMALL, ONE, nodes=1, gpu_batch=gpu_batch, accumulation_steps=accumulation_steps)


def origins(word: str) -> dict[str, str]:
    return dict.fromkeys(FACTORS, word)


class TestByHand:
    def test_typed_activations_count_both_ways_and_flops_below_the_traffic_not_at_all(self) -> None:
        # 9 x 4 + 4 = 40 ms; twice the traffic 76 ms; twice the flops are still the shorter. What a fused kernel spares
        # counts in full: 4 / 3.4 ms a sample.
        above, below = sides(models_of(**BY_HAND), on_one(9))
        assert above == pytest.approx(math.log(76 / 40) ** 2)
        assert below == pytest.approx(math.log(40 / (9 * 4 / UNFUSED + 4)) ** 2)

    def test_the_shorter_of_two_may_become_the_longer(self) -> None:
        # Flops take 3 ms of each sample: twice as many 6, which is more than the traffic's 4.
        above, below = sides(models_of(**{**BY_HAND, "flops_per_sample": "135 GFLOP"}), on_one(9))
        assert above == pytest.approx(math.log(76 / 40) ** 2 + math.log(58 / 40) ** 2)
        assert below == pytest.approx(math.log(40 / (9 * 3 + 4)) ** 2)

    def test_a_batch_that_would_not_fit_is_taken_in_two(self) -> None:
        # 124 samples fit, 62 twice as large: 100 become 2 x 50, so that 404 ms become 2 x (50 x 8 + 4).
        above, _ = sides(models_of(**BY_HAND), on_one(100))
        assert above == pytest.approx(math.log(808 / 404) ** 2)

    def test_samples_that_do_not_divide_fill_the_last_micro_step(self) -> None:
        # 3 x 123 are 6 x 61 and three in a seventh.
        above, _ = sides(models_of(**BY_HAND), on_one(123, 3))
        assert above == pytest.approx(math.log(7 * (61 * 8 + 4) / (3 * (123 * 4 + 4))) ** 2)

    def test_derived_counts_less_and_measured_not_at_all(self) -> None:
        above, _ = sides(models_of(**BY_HAND, origins=origins("derived")), on_one(9))
        assert above == pytest.approx(math.log((9 * 6 + 4) / 40) ** 2)
        assert sides(models_of(**BY_HAND, origins=origins("measured")), on_one(9)) == (0, 0)

    def test_full_precision_that_a_processor_showed_may_be_half_of_it_on_a_gpu(self) -> None:
        # 45 GFLOP take 10 ms of a sample at a tenth of the flops, 1 ms at half the width, which is more than its
        # traffic then: 4 / 2 / 3.4 ms.
        measured = {**BY_HAND, "precision": "fp32", "origins": {**origins("measured"), "precision": "derived"}}
        half = catalog(fp16=100.0)
        rows = Configurations.of(half, ONE, nodes=1, gpu_batch=9)
        above, below = sides(models_of((), half, **measured), rows)
        assert above == 0
        assert below == pytest.approx(math.log((9 * 10 + 4) / (9 * 1 + 4)) ** 2)
        assert sides(models_of(**measured), on_one(9)) == (0, 0)  # there is no half there
        assert sides(models_of((), half, **{**measured, "precision": "bf16"}), rows) == (0, 0)
        assert sides(models_of((), half, **{**measured, "origins": origins("measured")}), rows) == (0, 0)

    def test_the_model_s_own_doubt_is_as_before(self) -> None:
        plain = models_of(**BY_HAND).step_time.predict(on_one(9)).rows()[0]
        variance = COLD_START.covariance[0, 0] * 0.9**2 + COLD_START.covariance[1, 1] * 0.1**2 + RESIDUAL_SD**2
        assert math.log(plain.p95 / plain.p50) == pytest.approx(Z95 * math.sqrt(variance))


A10G = CATALOG.instance_type_by_name["g5.xlarge"]
L4 = CATALOG.instance_type_by_name["g6.xlarge"]
TYPED = {"flops_per_sample": "24.5 GFLOP", "parameters": "25.6M", "activation_bytes_per_sample": "60MB"}


def probe(gpu_batch: int, step_seconds: float, **more: Any) -> Measurement:
    where = {"instance_type": "g5.xlarge", "nodes": 1, "gpus_per_node": 1, "precision": "bf16"}
    return Measurement(**where, gpu_batch=gpu_batch, step_seconds=step_seconds, **more)


class TestMeasurements:
    rows = (probe(32, 0.1), probe(64, 0.19), probe(128, 0.37))
    peaks = tuple(row.model_copy(update={"peak_memory_bytes": 6e8 + row.gpu_batch * 61e6}) for row in rows)

    def test_probed_types_with_measured_peaks_are_not_doubted(self) -> None:
        models = models_of(self.peaks, CATALOG, **TYPED)
        rows = Configurations.of(CATALOG, A10G, nodes=1, gpu_batch=[32, 128])
        plain, doubted = models.step_time.predict(rows), models.doubted_steps.predict(rows)
        assert doubted.p95 == pytest.approx(plain.p95, rel=1e-6)

    def test_where_memory_was_not_measured_a_smaller_batch_may_be_needed(self) -> None:
        models = models_of(self.rows, CATALOG, **TYPED)
        rows = Configurations.of(CATALOG, A10G, nodes=1, gpu_batch=[100, 256])
        doubted = models.doubted_steps.predict(rows)
        plain = models.step_time.predict(rows)
        assert doubted.p95[0] == pytest.approx(plain.p95[0])  # 128 ran
        assert doubted.p95[1] > plain.p95[1] * 1.0001

    def test_what_one_type_measured_tells_the_others(self) -> None:
        cold, told = (models_of(rows, CATALOG, **TYPED) for rows in ((), self.peaks))
        one = Configurations.of(CATALOG, L4, nodes=1, gpu_batch=32)
        assert sides(cold, one)[0] == pytest.approx(math.log(2) ** 2, rel=0.1)
        assert sides(told, one)[0] < 0.15 * sides(cold, one)[0]


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(set(FACTORS) - {"precision"})),
    st.floats(-1, 1),
    st.integers(1, 300),
    st.sampled_from(["given", "derived"]),
    st.sampled_from(["g5.xlarge", "p4d.24xlarge", "g4dn.12xlarge"]),
)
def test_what_would_happen_if_an_input_were_wrong_is_inside(
    key: Any, power: float, gpu_batch: int, word: Any, name: str
) -> None:
    """Any value within the factor: the median then lies between p05 and p95 now."""
    said = job(**TYPED, origins=origins(word), precision="fp16").workload
    wrong = FACTORS[key][word]
    times = wrong.more**power if power > 0 else wrong.less**power
    true = said.model_copy(update={key: getattr(said, key) * times})
    kind = CATALOG.instance_type_by_name[name]
    rows = Configurations.of(CATALOG, kind, nodes=2, gpu_batch=gpu_batch)

    def models(workload: Any) -> DoubtedSteps:
        return fit_models(job().model_copy(update={"workload": workload}), CATALOG, ()).doubted_steps

    now, then = models(said).predict(rows), models(true).predict(rows)
    assert now.p05[0] <= then.p50[0] <= now.p95[0]
    assert now.p50[0] == models(said).steps.predict(rows).p50[0]


class TestStrongest:
    def test_names_the_input_that_moves_the_step_most(self) -> None:
        found = models_of(**BY_HAND).doubted_steps.strongest(on_one(9))
        assert found is not None
        assert (found.key, found.origin, found.factor) == ("activation_bytes_per_sample", "given", 2.0)  # not a third
        assert found.step_factor == pytest.approx(76 / 40)

    def test_less_of_it_where_that_matters_more(self) -> None:
        # Flops 16 ms a sample, traffic 4: half the flops take half the time, twice of them twice.
        bound = models_of(**{**BY_HAND, "flops_per_sample": "720 GFLOP"}).doubted_steps
        found = bound.strongest(on_one(9))
        assert found is not None
        assert (found.key, found.factor) == ("flops_per_sample", 2.0)
        assert found.step_factor == pytest.approx((9 * 32 + 4) / (9 * 16 + 4))

    def test_nothing_where_all_was_measured(self) -> None:
        assert models_of(**BY_HAND, origins=origins("measured")).doubted_steps.strongest(on_one(9)) is None

    def test_one_that_may_not_fit_at_all_comes_first(self) -> None:
        found = models_of(**{**BY_HAND, "activation_bytes_per_sample": "8GB"}).doubted_steps.strongest(on_one(1))
        assert found == Dependence(
            key="activation_bytes_per_sample", value=8e9, origin="given", factor=2.0, step_factor=None
        )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "activations 1.1GB per sample, given: twice as much would be 2.1x the hours; `scav inspect` measures it"),
        ({"factor": 0.5, "hours_factor": 0.52}, "half as much would be 0.5x the hours"),
        ({"factor": 1.5, "origin": "derived"}, "2.1x the hours; `scav inspect` on a GPU measures it"),
        ({"key": "flops_per_sample", "origin": "derived"}, "x the hours; `scav inspect` measures it"),
        ({"hours_factor": None}, "twice as much would not fit a GPU"),
        (
            {"key": "precision", "value": 32.0, "origin": "derived", "factor": 0.5, "hours_factor": 0.234},
            "full precision, seen without a GPU: half precision may take down to 0.23x the hours; say in the job file",
        ),
        ({"key": "flops_per_sample", "value": 24.6e9}, "flops 24.6 GFLOP per sample, given: twice"),
    ],
)
def test_the_sentence(changes: dict[str, Any], sentence: str) -> None:
    usual = {"key": "activation_bytes_per_sample", "value": 1.1e9, "origin": "given", "factor": 2, "hours_factor": 2.1}
    assert sentence in dependence(DoubtedInput(**{**usual, **changes}))


def forecast_of_gpt2(tmp_path: Path, activations: str, origin: str = "given", precision: str = "bf16") -> Quantiles:
    """`precision` is as a processor showed it."""
    text = (GPT2 / "scav.yaml").read_text(encoding="utf-8")
    start = text.index("  activation_bytes_per_sample")
    end = text.index("  checkpoint_bytes")
    text = text[:start] + f"  activation_bytes_per_sample: {activations}\n" + text[end:]
    text = text.replace("precision: bf16", f"precision: {precision}")
    origins = f"flops_per_sample: {origin}, activation_bytes_per_sample: {origin}, precision: derived"
    text = "\n".join(f"  origins: {{{origins}}}" if "origins" in line else line for line in text.splitlines())
    (tmp_path / "scav.yaml").write_text(text, encoding="utf-8")
    inputs = load_plan_inputs(tmp_path, {"instance_types": ("p4d.24xlarge",), "nodes": "1"}, None)
    request = ForecastRequest(
        instance_type=CATALOG.instance_type_by_name["p4d.24xlarge"],
        nodes=CountRange(1, 1),
        global_batch=CountRange(480, 480),
    )
    hours = predict_one(inputs, take_survey(inputs), request).hours
    return Quantiles(hours.p05, hours.p50, hours.p95)


def test_the_interval_shows_what_typed_activations_do_to_gpt2_on_p4d(tmp_path: Path) -> None:
    """Half and twice of a typed 1.1 GB are 64 and 254 h: both were outside, a factor of 1.7 around 127 h."""
    half, said, twice = (forecast_of_gpt2(tmp_path, size) for size in ("550MB", "1.1GB", "2.2GB"))
    assert (half.p50, said.p50, twice.p50) == pytest.approx((64.5, 128, 256), rel=0.03)
    assert said.p05 < half.p50
    assert said.p95 > twice.p50


@pytest.mark.parametrize("origin", ["derived", "given"])
@pytest.mark.parametrize("megabytes", [400, 436, 630, 850, 1110, 1400, 1600, 1800, 2000, 2200, 2500])
def test_what_nanogpt_took_is_inside_whatever_inspect_reports(tmp_path: Path, megabytes: int, origin: str) -> None:
    """Four days on one p4d (nanoGPT's README), fused and compiled: plain attention makes a processor report 1.6 to
    2.2 GB, which such a run does not move.
    """
    hours = forecast_of_gpt2(tmp_path, f"{megabytes}MB", origin)
    assert hours.p05 < 4 * 24 < hours.p95
    assert hours.p95 / hours.p05 < 12


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("megabytes", [800, 1110, 1600, 2200, 2800, 3600])
def test_what_nanogpt_took_is_inside_though_a_processor_showed_full_precision(
    tmp_path: Path, megabytes: int, precision: str
) -> None:
    """Fused attention keeps 1.1 GB of a sample at full width, plain attention with dropout up to 3.5 GB."""
    hours = forecast_of_gpt2(tmp_path, f"{megabytes}MB", "measured", precision)
    assert hours.p05 < 4 * 24 < hours.p95


def test_plain_attention_is_doubted_downwards_and_no_further_than_the_flops(tmp_path: Path) -> None:
    hours, flops_alone = (forecast_of_gpt2(tmp_path, size, "derived") for size in ("1.8GB", "100MB"))
    assert math.log(hours.p50 / hours.p05) > 1.5 * math.log(hours.p95 / hours.p50)
    assert hours.p05 > flops_alone.p05


def test_a_plan_names_it_in_text_and_evidence() -> None:
    inputs = load_plan_inputs(GPT2, {"instance_types": ("p4d.24xlarge",), "spot": "never", "budget": "$9000"}, None)
    plan = make_plan(inputs)
    doubted = plan.evidence.doubted_input
    assert doubted is not None
    assert (doubted.key, doubted.value, doubted.origin) == ("activation_bytes_per_sample", 630e6, "derived")
    assert doubted.hours_factor == pytest.approx(1.48, abs=0.05)
    assert plan.sensitivity[-2] == dependence(doubted)  # the last is about probes


def test_without_doubt_a_plan_names_nothing(tmp_path: Path) -> None:
    text = (GPT2 / "scav.yaml").read_text(encoding="utf-8").replace(": derived", ": measured")
    (tmp_path / "scav.yaml").write_text(text, encoding="utf-8")
    plan = make_plan(load_plan_inputs(tmp_path, {"instance_types": ("p4d.24xlarge",), "spot": "never"}, None))
    assert plan.evidence.doubted_input is None
    assert not any("measures it" in line for line in plan.sensitivity)


def test_medians_do_not_move() -> None:
    models = models_of((), CATALOG, **TYPED)
    rows = Configurations.of(CATALOG, A10G, nodes=[1, 4], gpu_batch=[8, 64])
    assert np.array_equal(models.doubted_steps.predict(rows).p50, models.step_time.predict(rows).p50)
