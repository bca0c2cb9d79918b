"""docs/provider.md: its attributes are the schema's, and its first example is what `scav init --terraform` writes.

`pytest tests/cli/test_provider_page.py --update-golden` writes the attributes anew; tests/terraform applies that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.provider.schema import COMPUTED, DATA_OFFERS, INPUTS, OFFER, VARIABLES, AttributeSpec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "provider.md"
BETWEEN = re.compile(r"(?s)(?<=--update-golden` -->\n).*?(?=<!-- end -->)")


def offers() -> str:
    columns = ", ".join(f"`{name}`" for name in OFFER)
    table = ["| attribute | type | what it is |", "|---|---|---|", *rows(DATA_OFFERS)]
    return "\n".join(["", *table, "", f"An offer has {columns}.", "", ""])


def attributes() -> str:
    given = ["| attribute | type | what it says |", "|---|---|---|", *rows(INPUTS)]
    decided = ["| attribute | type | what was decided |", "|---|---|---|", *rows(COMPUTED)]
    variables = ", ".join(f"`{name}`" for name in VARIABLES)
    return "\n".join(["", *given, "", *decided, "", f"`variables` holds {variables}.", "", ""])


def rows(specs: Iterable[AttributeSpec]) -> list[str]:
    return [
        f"| `{spec.name}` | {words(spec.type)}{', required' * (spec.use == 'required')} | {spec.description} |"
        for spec in specs
    ]


def words(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    return "object" if kind[0] == "object" else f"{kind[0]} of {words(kind[1])}s"


def test_the_page_has_every_attribute(update_golden):
    text = PAGE.read_text(encoding="utf-8")
    wanted = [attributes(), offers()]
    if update_golden:
        parts = iter(wanted)
        PAGE.write_text(BETWEEN.sub(lambda _: next(parts), text), encoding="utf-8")
    else:
        assert BETWEEN.findall(text) == wanted


def test_the_first_example_is_what_init_writes(run_scav, tmp_path):
    (tmp_path / "job").mkdir()
    written = run_scav("init", "--terraform", "job")
    assert written.exit_code == 0, written.output
    example = re.findall(r"(?s)```hcl\n(.*?)```", PAGE.read_text(encoding="utf-8"))[0]
    assert (tmp_path / "job/main.tf").read_text(encoding="utf-8") == example
    assert {path.name for path in (tmp_path / "job/modules").iterdir()} == {"gpu-cluster", "planned-cluster"}


def test_init_plans_the_job_that_is_there_and_overwrites_nothing(run_scav, tmp_path, job_text):
    (tmp_path / "scav.yaml").write_text(job_text)
    assert run_scav("init", "--terraform").exit_code == 0
    assert (tmp_path / "scav.yaml").read_text() == job_text
    again = run_scav("init", "--terraform")
    assert (again.exit_code, again.output) == (1, "Error: main.tf: already exists; scav init does not overwrite\n")
