"""Where shown text ends and numbers change their form: the last case on either side."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from planner import units
from planner.contract import Contract, Fault, first_fault, kept_digits, six_digits, text_form
from planner.errors import OutOfMemory, TerraformFailed, TerraformInterrupted, did_you_mean, one_line


class TestOneLine:
    def test_exactly_the_limit_stays_and_one_more_is_cut(self) -> None:
        assert one_line("x" * 400) == "x" * 400
        assert one_line("x" * 401) == "x" * 399 + "…"
        assert one_line("abcd", 4) == "abcd"
        assert one_line("abcde", 4) == "abc…"


class TestDidYouMean:
    KNOWN = ("nodes", "node_count", "Notes", "budget", "NODE_LIMIT")

    def test_what_begins_alike_goes_before_what_is_close(self) -> None:
        assert did_you_mean("node", self.KNOWN) == "; did you mean nodes or node_count or NODE_LIMIT?"
        assert did_you_mean("nodse", self.KNOWN) == "; did you mean nodes or Notes?"
        assert did_you_mean("NOTES", self.KNOWN) == "; did you mean Notes?"

    def test_at_most_three(self) -> None:
        many = [f"node{number}" for number in range(6)]
        assert did_you_mean("node", many).count("node") == 3
        assert did_you_mean("nodeX", many).count("node") == 3

    def test_nothing_where_nothing_is_close(self) -> None:
        assert did_you_mean("zzz", self.KNOWN) == did_you_mean("", self.KNOWN) == ""

    def test_only_the_beginning_of_a_long_text_is_compared(self) -> None:
        assert did_you_mean("b" * 80 + "x" * 1000, ["b" * 80]) == f"; did you mean {'b' * 80}?"
        assert did_you_mean("b" * 81, ["b" * 80 + "a"]) == f"; did you mean {'b' * 80}a?"


def test_terraform_s_own_message_follows_ours() -> None:
    assert str(TerraformFailed("it failed", "because")) == "it failed\n\nbecause"
    assert str(TerraformFailed("it failed")) == "it failed"
    assert (TerraformInterrupted.exit_code, TerraformFailed.exit_code) == (130, 1)
    assert OutOfMemory("too large", gpu_batch=7).gpu_batch == 7


class TestDigits:
    def test_six_of_every_number_in_it(self) -> None:
        assert kept_digits(1234567.8) == 1234570.0
        assert kept_digits(0.00012345678) == 0.000123457
        given = {"a": [1.23456789, {"b": 2.0000001}], "c": 7, "d": "1.23456789", "e": None, "f": True}
        assert six_digits(given) == {"a": [1.23457, {"b": 2.0}], "c": 7, "d": "1.23456789", "e": None, "f": True}


class Inner(Contract):
    count: int = 0
    label: str = Field(default="", alias="name")


class Outer(Contract):
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    size: float = Field(default=1.0, ge=0.5)


def fault(document: object) -> Fault:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(document)
    return first_fault(caught.value, Outer)


class TestFaults:
    def test_a_typo_goes_before_everything_else_and_the_rest_is_counted(self) -> None:
        found = fault({"size": 0.1, "inner": {"cuont": 1}})
        assert found == (("inner", "cuont"), "unknown key; did you mean count? (and 1 more)")
        assert found.key == "inner.cuont"

    def test_a_single_fault_is_not_counted(self) -> None:
        assert fault({"inner": {"cuont": 1}}).message == "unknown key; did you mean count?"

    def test_keys_are_those_of_the_place_by_the_names_that_files_use(self) -> None:
        assert fault({"inner": {"zzz": 1}}).message == "unknown key; known here: count, name"
        assert fault({"several": [{"zzz": 1}]}).message == "unknown key; known here: count, name"
        assert fault({"zzz": 1}).message == "unknown key; known here: inner, several, size"

    def test_other_faults_say_what_was_found(self) -> None:
        assert fault({"size": 0.1}).message == "input should be greater than or equal to 0.5, not 0.1"
        assert fault({"inner": 3}).message == "3 must be a group of `key: value` lines"
        assert fault({"several": 3}).message == "3 must be a list; write [a, b]"
        assert Fault((), "x").key is None

    def test_what_was_found_is_cut_after_sixty_letters(self) -> None:
        # With its quotes 60 and 61 letters.
        assert fault({"size": "x" * 58}).message.endswith(f", not {'x' * 58!r}")
        assert fault({"size": "x" * 59}).message.endswith(f", not '{'x' * 58}…")

    def test_a_pattern_is_shown_in_words(self) -> None:
        assert text_form("^a+$", "letters a", longest=3).max_length == 3
        assert text_form("^a+$", "letters a").max_length is None


class TestNumbersAsText:
    @pytest.mark.parametrize(
        ("usd", "text"), [(0, "$0.00"), (99.994, "$99.99"), (99.999, "$100.00"), (100, "$100"), (1234.5, "$1,234")]
    )
    def test_cents_below_a_hundred_dollars(self, usd: float, text: str) -> None:
        assert units.format_usd(usd) == text

    @pytest.mark.parametrize(
        ("hours", "text"),
        [
            (0.25, "15 min"),
            (0.999, "60 min"),
            (1, "1 h"),
            (1.25, "1.2 h"),
            (99.9, "99.9 h"),
            (100, "100 h"),
            (1234, "1,234 h"),
        ],
    )
    def test_hours(self, hours: float, text: str) -> None:
        assert units.format_hours(hours) == text

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (9999, "9,999"),
            (10_000, "10 k"),
            (999_499, "999 k"),
            (999_500, "1,000 k"),
            (1e6, "1 M"),
            (1.234e6, "1.23 M"),
            (1e9, "1 G"),
            (2.5e12, "2.5 T"),
            (1234e12, "1,234 T"),
        ],
    )
    def test_counts(self, count: float, text: str) -> None:
        assert units.format_count(count) == text

    @pytest.mark.parametrize(
        ("share", "text"),
        [(0, "0 %"), (0.0049, "<1 %"), (0.005, "<1 %"), (0.006, "1 %"), (0.5, "50 %"), (1.2, "120 %")],
    )
    def test_percent(self, share: float, text: str) -> None:
        assert units.format_percent(share) == text

    @pytest.mark.parametrize(
        ("probability", "text"), [(0.9949, "99 %"), (0.995, ">99 %"), (1, ">99 %"), (0.001, "<1 %")]
    )
    def test_no_prediction_is_certain(self, probability: float, text: str) -> None:
        assert units.format_probability(probability) == text


class TestQuantities:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("1e-9", None),
            ("0.99e-9", "too small to be real"),
            ("1e30", None),
            ("1.01e30", "too large to be real"),
            ("-1", "must be above zero"),
            ("0", "must be above zero"),
        ],
    )
    def test_the_smallest_and_the_largest(self, text: str, said: str | None) -> None:
        if said is None:
            assert units.parse_samples(text) == float(text)
        else:
            with pytest.raises(ValueError, match=said):
                units.parse_samples(text)

    def test_a_hundred_letters_are_read_and_no_more(self) -> None:
        assert units.parse_samples("1".rjust(100)) == 1.0
        with pytest.raises(ValueError, match="is not a number of samples"):
            units.parse_samples("1".rjust(101))

    def test_what_is_shown_of_a_wrong_text_is_cut_after_forty_letters(self) -> None:
        for length, shown in ((40, "'" + "x" * 40 + "'"), (41, "'" + "x" * 39 + "…'")):
            with pytest.raises(ValueError, match="is not a count") as caught:
                units.parse_count("x" * length)
            assert str(caught.value).startswith(shown + " is")

    def test_whole_numbers_only(self) -> None:
        assert units.parse_count("1.5k") == 1500
        with pytest.raises(ValueError, match=r"'1\.5' is not a whole number"):
            units.parse_count("1.5")

    def test_ranges_have_their_minimum_first(self) -> None:
        assert units.parse_count_range("3..3") == (3, 3)
        with pytest.raises(ValueError, match=r"'4..3' has its minimum above its maximum; write 3..4"):
            units.parse_count_range("4..3")
        for text in ("..3", "3.."):
            with pytest.raises(ValueError, match="is open at one end"):
                units.parse_count_range(text)

    def test_truth_is_no_quantity(self) -> None:
        with pytest.raises(ValueError, match="'True' is not a count"):
            units.parse_count(True)
