"""Twenty thousand broken files of each kind that others write: an answer or a ScavError, never another exception.

Seeded, so that a failure is the same everywhere. Half of the cases are broken as text, half as what the text means:
a value of another kind anywhere in the tree.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import ScavError
from planner.inputs import Snapshot, format_catalog, parse_catalog, parse_measurements
from planner.inputs.measured_noise import measured_noise
from planner.inputs.measurements import usable
from planner.outside import assets
from planner.outside.terraform.events import Progress, change_counts, diagnostics, parse_event, texts
from planner.plan import compare_prices, compare_terraform_plan, compare_values, parse_plan
from planner.plan.check.files import decided_elsewhere, unknown_files
from planner.plan.prices import price_differences
from planner.plan.variables import workspace_variables

pytestmark = pytest.mark.slow

CASES = 20_000
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
VALUES = (
    *(None, True, False, 0, 1, -1, 2**63, 10**400, 0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf")),
    *("", " ", "0", "null", "\x00", "\x1b[2J", "\ud800", "\u202e", "${x}", "a" * 5000, "é", "2026-02-30", "9" * 5000),
    *([], {}, [[]], [{}], {"": {}}, [None], {"a": [{"b": [0]}]}, ["x"] * 200),
)
PIECES = ("{", "}", "[", "]", ",", ":", '"', "\\", "\n", "\x00", "null", "NaN", "1e999", "-", "\\ud800", "9" * 400, "é")


def changed_tree(chance: random.Random, tree: Any) -> Any:
    """A few values of another kind, keys gone, keys added; what is not touched is shared, not copied."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        tree = _changed_once(chance, tree)
    return tree


def _changed_once(chance: random.Random, node: Any) -> Any:
    if chance.random() < 0.08 or not isinstance(node, dict | list) or not node:
        return nested(chance) if chance.random() < 0.05 else chance.choice(VALUES)
    if isinstance(node, list):
        place = chance.randrange(len(node))
        kind = chance.random()
        inside = [] if kind < 0.05 else [node[place]] * 2 if kind < 0.1 else [_changed_once(chance, node[place])]
        return [*node[:place], *inside, *node[place + 1 :]]
    key = chance.choice(list(node))
    kind = chance.random()
    rest = {name: value for name, value in node.items() if name != key}
    if kind < 0.05:
        return rest
    if kind < 0.1:
        return {**node, str(chance.choice(VALUES))[:50]: chance.choice(VALUES)}
    return {**rest, key: _changed_once(chance, node[key])}


def nested(chance: random.Random) -> Any:
    value: Any = chance.choice(VALUES)
    for _ in range(chance.choice((5, 50, 300))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def changed_text(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(text) + 1)
        cut = place + chance.choice((0, 0, 1, 3, 40))
        text = text[:place] + chance.choice((*PIECES, "")) + text[cut:]
    if chance.random() < 0.02:
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(("[", '{"a":')) * chance.choice((100, 2000, 100_000)) + text[place:]
    return text


def broken(chance: random.Random, tree: Any, text: str) -> str:
    """As a file: what JSON cannot say is said as Python's own writer does."""
    if chance.random() < 0.5:
        return changed_text(chance, text)
    return json.dumps(changed_tree(chance, tree), ensure_ascii=False)


def fuzz(name: str, judge: Callable[[random.Random], bool]) -> None:
    """`judge` says whether the file was taken; some must be, or nothing behind the parser was tried, and some not."""
    taken = 0
    for number in range(CASES):
        chance = random.Random(f"{name}, {number}")  # noqa: S311 (repeatable on purpose)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                taken += judge(chance)
        except ScavError as error:
            message = str(error)
            assert message == message.strip(), f"case {number}: {message!r}"
            assert len(message.splitlines()) == 1, f"case {number}: {message!r}"
            message.encode()
        except BaseException as error:
            pytest.fail(f"case {number}: {error!r}")
    assert CASES * 0.02 < taken < CASES * 0.98, taken


# Terraform's events


EVENTS: list[dict[str, Any]] = [
    {"@level": "info", "@message": "Terraform 1.9.0", "type": "version", "terraform": "1.9.0", "ui": "1.2"},
    {"@message": "x: Plan to create", "type": "planned_change", "change": {"resource": {}, "action": "create"}},
    {"type": "change_summary", "changes": {"add": 1, "change": 0, "remove": 2, "operation": "plan"}},
    {"@message": "x: Creating...", "type": "apply_start", "hook": {"resource": {"addr": "x"}, "action": "create"}},
    {"@message": "x: Done", "type": "apply_complete", "hook": {"action": "replace", "elapsed_seconds": 3}},
    {"@message": "x: Failed", "type": "apply_errored", "hook": {"action": "delete"}},
    {
        "@level": "error", "@message": "Error: no", "type": "diagnostic",
        "diagnostic": {
            "severity": "error", "summary": "no", "detail": "because\nof this", "address": "module.a.b",
            "range": {"filename": "main.tf", "start": {"line": 3, "column": 1}, "end": {"line": 3}},
            "snippet": {"context": 'resource "a" "b"', "code": "a = 1", "start_line": 3, "values": []},
        },
    },
    {"@message": "text past the format", "type": "text"},
]  # fmt: skip


def test_fuzzed_terraform_events():
    lines = [json.dumps(event) for event in EVENTS]

    def judge(chance: random.Random) -> bool:
        picked = [chance.randrange(len(EVENTS)) for _ in range(chance.randint(1, 4))]
        stream = [broken(chance, EVENTS[place], lines[place]) for place in picked]
        events = [parse_event(line) for line in stream]
        now = Progress()
        for event in events:
            now = now.after(event)
        found = diagnostics(events)
        text = "\n".join([*map(str, found), *texts(events), now.current])
        counts = change_counts(events, "plan")
        assert all(type(count) is int for count in (*counts.values(), now.done, now.total))
        assert isinstance(text, str)
        return any(event.get("type") != "text" for event in events)

    fuzz("events", judge)


# Terraform's plans, and the files beside scav's


PLAN = parse_plan((GOLDEN / "scav.plan.json").read_text(), file="scav.plan.json")
TERRAFORM = json.loads((GOLDEN / "plan.json").read_text())
TFVARS = json.loads((GOLDEN / "terraform.tfvars.json").read_text())
CALL = TERRAFORM["configuration"]["root_module"]["module_calls"]["gpu_cluster"]
DECLARED = frozenset(resource["address"] for resource in CALL["module"]["resources"])


def test_fuzzed_terraform_plans():
    def judge(chance: random.Random) -> bool:
        terraform = changed_tree(chance, TERRAFORM)
        values = changed_tree(chance, TFVARS) if chance.random() < 0.3 else TFVARS
        if not isinstance(terraform, dict) or not isinstance(values, dict):
            return False  # the command says so
        found = compare_terraform_plan(PLAN, terraform, values=values, declared=DECLARED)
        found.model_dump_json().encode()
        compare_values(PLAN, values).model_dump_json().encode()
        return True

    fuzz("check", judge)


SITE = """\
# of the platform team
kms_key_arn = "arn:x"  // ours
route_tables = ["rtb-1",
  "rtb-2"]
tags = { team = "a", "cost centre" = "b" } /* of ours */
"""
BACKEND = """\
terraform {
  required_version = ">= 1.6"
  backend "s3" {
    key = "a\\"b"
    tags = { a = [1, 2] }
  }
}
"""
EMPTY: dict[str, Any] = {"kms_key_arn": None, "tags": {"team": ["a"]}}
TEXTS = {"backend.tf": BACKEND, "site.auto.tfvars": SITE, "extra.tf": BACKEND}


def test_fuzzed_files_beside_scavs():
    decided = workspace_variables(PLAN)

    def judge(chance: random.Random) -> bool:
        name = chance.choice((*TEXTS, "site.auto.tfvars.json"))
        text = changed_text(chance, TEXTS[name]) if name in TEXTS else broken(chance, EMPTY, json.dumps(EMPTY))
        added = {name: chance.choice((text, text, text, None))}
        found = [*unknown_files(added, ()), *decided_elsewhere(added, decided)]
        for finding in found:
            finding.model_dump_json().encode()
        return bool(found)

    fuzz("files", judge)


# Catalogues


def small_catalog() -> dict[str, Any]:
    """A few rows of every table, and only what they cite."""
    catalog = json.loads(assets.embedded_catalog().read_text(encoding="utf-8"))
    types = [row for row in catalog["instance_types"] if row["name"] in ("g5.xlarge", "g4dn.12xlarge")]
    regions = catalog["regions"][:2]
    names = {row["name"] for row in regions}
    sold = {row["name"] for row in types}
    return catalog | {
        "instance_types": types,
        "gpus": [row for row in catalog["gpus"] if row["name"] in {item["gpu"] for item in types}],
        "regions": regions,
        "offers": [row for row in catalog["offers"] if row["instance_type"] in sold and row["region"] in names],
    }


def test_fuzzed_catalogues():
    tree = small_catalog()
    text = json.dumps(tree)
    known = Snapshot(parse_catalog(text, file="known.json"), "known", "0" * 64)

    def judge(chance: random.Random) -> bool:
        catalog = parse_catalog(broken(chance, tree, text), file="catalog.json")
        again = parse_catalog(format_catalog(catalog), file="catalog.json")
        assert again == catalog
        for difference in price_differences(compare_prices(PLAN, catalog, known)):
            difference.model_dump_json().encode()
        return True

    fuzz("catalogues", judge)


# Measurements


ROWS: list[dict[str, Any]] = [
    {"instance_type": "g5.xlarge", "nodes": 1, "gpus_per_node": 1, "gpu_batch": 64, "precision": "bf16",
     "step_seconds": 0.2},
    {
        "schema_version": 1, "instance_type": "g4dn.12xlarge", "nodes": 4, "gpus_per_node": 4, "gpu_batch": 32,
        "accumulation_steps": 2, "precision": "fp16", "step_seconds": 0.31, "step_seconds_p90": 0.4, "windows": 8,
        "window_variation": 0.02, "exposed_sync_seconds": 0.05, "data_wait_seconds": 0.0, "parameters": 25_600_000,
        "allreduce": [{"bytes": 1e6, "seconds": 0.01}, {"bytes": 1e8, "seconds": 0.4}], "gradient_bytes": 1e8,
        "noise": {"scale": 900.0, "low": 700.0, "high": 1200.0, "groups": 8, "reached": True, "at_step": 100},
        "peak_memory_bytes": 1e10, "out_of_memory_at": 128, "checkpoint_save_seconds": 3.0, "startup_seconds": 60.0,
        "checkpoint_restore_seconds": 4.0, "checkpoint_bytes": 1e8, "probe_usd": 0.4, "image_digest": "sha256:1",
        "hardware": {"gpu": "T4", "count": 4, "load": 0.1}, "software": {"torch": "2.4"},
    },
]  # fmt: skip


def measurement_lines(chance: random.Random) -> Iterator[str]:
    for row in [chance.choice(ROWS) for _ in range(chance.randint(1, 4))]:
        line = json.dumps(row)
        yield broken(chance, row, line) if chance.random() < 0.5 else line


def test_fuzzed_measurements():
    catalog = parse_catalog(json.dumps(small_catalog()), file="known.json")

    def judge(chance: random.Random) -> bool:
        text = "\n".join(measurement_lines(chance)) + chance.choice(("\n", ""))
        found = parse_measurements(text, file="measurements.jsonl")
        kept = usable(found.rows, catalog, chance.choice(("bf16", "fp16", "tf32", "fp8")))
        measured_noise(found.rows)
        for row in kept.rows:
            row.model_dump_json().encode()
        return bool(found.rows)

    fuzz("measurements", judge)
