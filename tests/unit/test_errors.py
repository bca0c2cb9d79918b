"""Errors: one line, one exit code each, whatever a user typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import errors
from planner.errors import GuardrailExceeded, InputError, NoFeasiblePlan, ScavError, StaleWorkspace, one_line


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ScavError, 1), (InputError, 1), (NoFeasiblePlan, 3), (GuardrailExceeded, 4), (StaleWorkspace, 5)],
)
def test_exit_codes_are_those_of_the_tree_in_the_docstring(kind, code):
    assert kind.exit_code == code
    assert issubclass(kind, ScavError)
    row = next(line for line in (errors.__doc__ or "").splitlines() if kind.__name__ in line)
    assert f"exit {code}" in row


def test_an_input_error_names_file_line_and_key():
    assert str(InputError("is wrong", file="scav.yaml", line=3, key="a.b")) == "scav.yaml:3: a.b: is wrong"
    assert str(InputError("is wrong", file="scav.yaml", key="a.b")) == "scav.yaml: a.b: is wrong"
    assert str(InputError("is wrong", file="scav.yaml")) == "scav.yaml: is wrong"
    assert str(InputError("is wrong")) == "is wrong"


@given(st.text(), st.text(), st.text(), st.integers(1, 9))
def test_an_input_error_is_one_printable_line_whatever_is_in_it(message, file, key, line):
    shown = str(InputError(message, file=file, line=line, key=key))
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(st.text(), st.integers(1, 500))
def test_one_line_keeps_its_limit(text, limit):
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()


def test_one_line_leaves_plain_text_alone_and_shows_the_rest_escaped():
    assert one_line("budget $400 · ok") == "budget $400 · ok"
    assert one_line("a\nb\x1b[31m\ud800") == r"a\nb\x1b[31m\ud800"
