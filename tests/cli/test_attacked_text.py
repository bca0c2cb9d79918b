"""Text that somebody else wrote: in a pull request's comment it is text, and a terminal obeys none of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from planner import __version__
from planner.errors import TerraformFailed, one_line, printable_lines
from planner.outside import assets
from planner.outside.terraform.events import Progress
from planner.plan.review.escaping import escaped, literal, paragraph

HOSTILE = (
    "a|b `c` <img src=x onerror=alert(1)> ![x](https://evil.example/x.png) [click](https://evil.example) **b** _i_"
    " ~~s~~ @org/everyone #1 !2 https://evil.example www.evil.example <https://evil.example> &#64;team &lt; \\ "
    "\n\n# Approved\n| x | y |\x1b[2J\x1b]0;owned\x07\u202egnp.exe\x9b31m"
)
MARKUP = {"link_open", "image", "html_inline", "html_block", "strong_open", "em_open", "s_open", "heading_open"}
MENTION = re.compile(r"[@#]\w|!\d|://|www\.", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def tokens(markdown: str) -> list[Token]:
    found = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    return [child for token in found for child in (token, *(token.children or ()))]


texts = st.text(
    st.one_of(st.sampled_from("|`*_[]()<>!@#\\~&;:/w.-+=\n\r\t\x1b\u202e 1a"), st.characters()), max_size=60
)


def test_a_text_may_have_two_thousand_characters():
    assert escaped("x" * 2000) == "x" * 2000
    assert escaped("x" * 2001) == "x" * 1999 + "…"


@given(texts)
def test_in_a_cell_it_shows_as_it_is_written(text):
    table = f"| a | b |\n| --- | --- |\n| x{escaped(text)}x | {escaped(text)} |"
    found = tokens(table)
    assert [token.type for token in found].count("td_open") == 2
    assert not MARKUP & {token.type for token in found}
    cells = [token for token in found if token.type == "inline"][2:]
    plain = "".join(child.content for child in cells[0].children or ())
    assert plain.replace("\u2060", "") == f"x{one_line(text, 2000)}x".replace("\u2060", "")
    assert not MENTION.search(plain)


@given(texts)
def test_a_paragraph_of_it_is_a_paragraph(text):
    found = tokens(paragraph(f"{text}."))
    assert not MARKUP & {token.type for token in found}
    assert not {"bullet_list_open", "hr", "fence", "blockquote_open"} & {token.type for token in found}


@given(texts)
def test_as_code_it_cannot_end_the_code(text):
    found = tokens(f"# What {literal('a' + text)} costs")
    assert [token.type for token in found if token.type not in {"inline", "text"}] == [
        *("heading_open", "code_inline", "heading_close")
    ]


@pytest.fixture
def hostile_workspace(run_scav: Callable[..., Result], write_job: Callable[..., Path], tmp_path: Path) -> Path:
    write_job()
    assert run_scav("plan").exit_code == 0
    folder = tmp_path / "scav-plan"
    plan = json.loads((folder / "scav.plan.json").read_text())
    plan["scav_version"] = "0.0.9"  # of this one its variables would have to follow from it
    plan |= {"reason": HOSTILE, "sensitivity": [HOSTILE], "run_id": f"x`{HOSTILE}", "summary": HOSTILE}
    plan["inputs"]["catalog"] = HOSTILE
    plan["evidence"]["statement"] = HOSTILE
    plan["left_out"] = {"considered": 3, "reasons": {HOSTILE: 1}}
    plan["choice"]["vcpu_quota"] = {"family": HOSTILE, "on_demand": 1, "spot": 0}
    plan["choice"] |= {"gpu": HOSTILE, "availability_zone": HOSTILE, "instance_type": HOSTILE}
    for option in plan["alternatives"]:
        option |= {"instance_type": HOSTILE, "why_not": HOSTILE}
    (folder / "scav.plan.json").write_text(json.dumps(plan))
    (folder / "scav.files.json").unlink()
    return folder


def test_a_plan_file_full_of_markup_is_text_in_a_comment(run_scav, hostile_workspace, tmp_path):
    (tmp_path / "other").mkdir()
    plan = json.loads((hostile_workspace / "scav.plan.json").read_text())
    plan["inputs"]["catalog"] = "another"
    (tmp_path / "other" / "scav.plan.json").write_text(json.dumps(plan))
    result = run_scav("review", hostile_workspace, "--format", "markdown", "--against", "other", "--max-usd", "1")
    assert result.exit_code == 4
    found = tokens(result.stdout)
    assert not {"link_open", "image", "html_inline", "html_block", "s_open"} & {item.type for item in found}
    assert [item.type for item in found].count("em_open") == 1  # ours: *at most*
    ours = [
        "# What",
        "## Where the dollars go (p50)",
        "## Guardrails",
        "## Change",
        "## Why this cluster",
        "## The cluster",
    ]
    headings = [line for line in result.stdout.splitlines() if line.startswith("#")]
    assert len(headings) == len(ours) + 2
    assert not MENTION.search(re.sub(r"`[^`]*`", "", result.stdout.replace("\u2060", " ")))
    assert not CONTROL.search(result.stdout)


@pytest.mark.parametrize("command", [["review"], ["simulate"], ["check"]])
def test_a_plan_file_full_of_escape_codes_is_text_on_a_terminal(run_scav, hostile_workspace, command):
    result = run_scav(*command, hostile_workspace)
    assert result.exit_code in {0, 4}
    assert not CONTROL.search(result.output)


@pytest.mark.parametrize("command", [["review"], ["check"]])
def test_so_is_one_whose_variables_do_not_follow_from_it(run_scav, hostile_workspace, command):
    file = hostile_workspace / "scav.plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"scav_version": __version__}))
    result = run_scav(*command, hostile_workspace)
    assert result.exit_code in {4, 5}
    assert not CONTROL.search(result.output)


@pytest.mark.parametrize("place", ["gpus", "instance_types", "regions", "sources"])
def test_a_catalogue_with_escape_codes_is_refused(run_scav, tmp_path, place):
    catalog = json.loads(assets.embedded_catalog().read_text())
    if place == "sources":
        catalog["sources"]["nvidia-v100"]["title"] = HOSTILE
    else:
        catalog[place][0]["name"] = HOSTILE
    (tmp_path / "prices.json").write_text(json.dumps(catalog))
    result = run_scav("catalog", "list", "--catalog", "prices.json")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "holds control characters or ends of lines" in result.stderr
    assert not CONTROL.search(result.stderr)


def test_a_catalogue_with_markup_in_its_names_is_text_in_a_comment(run_scav, write_job, tmp_path):
    """Printable, so it is read; and it reaches COST.md."""
    text = assets.embedded_catalog().read_text().replace('"A10G"', '"[free](https://evil.example)|@all"')
    (tmp_path / "prices.json").write_text(text)
    write_job()
    assert run_scav("plan", "--catalog", "prices.json").exit_code == 0
    cost = (tmp_path / "scav-plan" / "COST.md").read_text()
    assert "@\u2060all" in cost
    assert "link_open" not in {token.type for token in tokens(cost)}


def test_a_measurement_with_escape_codes_is_one_line_of_warning(run_scav, write_job, measurement_line, tmp_path):
    write_job()
    row = json.loads(measurement_line) | {"instance_type": HOSTILE}
    (tmp_path / "measurements.jsonl").write_text(json.dumps(row) + "\n")
    result = run_scav("plan")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1
    assert not CONTROL.search(result.stderr)


# Terraform's own text


def test_terraforms_message_keeps_its_lines_and_loses_its_codes(run_scav, write_job, tmp_path, monkeypatch):
    write_job()
    run_scav("plan")
    terraform = tmp_path / "terraform"
    terraform.write_text(
        "#!/bin/sh\nprintf '\\033[31mError:\\033[0m no\\n\\033]0;owned\\007\\tprovider\\r\\033[2Jfake\\n' >&2\nexit 1\n"
    )
    terraform.chmod(0o755)
    monkeypatch.setenv("SCAV_TERRAFORM", str(terraform))
    result = run_scav("adopt", "scav-plan", "--yes")
    assert result.exit_code == 1
    assert not CONTROL.search(result.stderr)
    assert "Error: no\n    provider\nfake\n" in result.stderr


@given(st.text(st.sampled_from("\x1b[]0;31m\x07\\@ab\n\r\t\x9b\u202e"), max_size=80))
def test_no_rest_of_a_code_is_left(text):
    assert not CONTROL.search(printable_lines(text))
    assert not CONTROL.search(str(TerraformFailed("it failed", text)))
    assert printable_lines(text).count("\n") <= text.count("\n")


def test_progress_shows_no_codes():
    event = {"type": "apply_start", "@message": "\x1b[2Jcreating\n"}
    assert Progress().after(event).current == "\\x1b[2Jcreating\\n"
