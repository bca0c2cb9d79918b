"""Human units: what people write, what they mean, and that nothing else gets through."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units

PARSERS = [
    units.parse_hours,
    units.parse_seconds,
    units.parse_usd,
    units.parse_count,
    units.parse_samples,
    units.parse_bytes,
    units.parse_bytes_or_zero,
    units.parse_flop,
    units.parse_count_range,
]
ALMOST_UNITS = st.text(alphabet="0123456789.,_-+eE $xhdmsBkKMGTPiFLOPU\t\n", max_size=30)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("24h", 24),
        ("1d12h", 36),
        ("1d 12h", 36),
        ("90min", 1.5),
        ("90 m", 1.5),
        ("3600s", 1),
        ("3600 sec", 1),
        ("0.5h", 0.5),
        (".5h", 0.5),
        ("2 hours", 2),
        ("1 day", 24),
        ("2w", 336),
        (" 7d ", 168),
        ("1,000h", 1000),
    ],
)
def test_durations(text, hours):
    assert units.parse_hours(text) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("$400", 400),
        ("$1,234.50", 1234.5),
        ("$ 400", 400),
        ("400", 400),
        (400, 400),
        ("400 USD", 400),
        ("400usd", 400),
        ("$1e3", 1000),
    ],
)
def test_dollars(text, usd):
    assert units.parse_usd(text) == usd


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1281167", 1_281_167),
        ("1_281_167", 1_281_167),
        ("1,281,167", 1_281_167),
        ("115M", 115_000_000),
        ("25.6M", 25_600_000),
        ("1.2e6", 1_200_000),
        ("8.83M", 8_830_000),
        ("2k", 2000),
        ("2K", 2000),
        ("7B", 7_000_000_000),
        ("7G", 7_000_000_000),
        ("1T", 10**12),
        (8, 8),
    ],
)
def test_counts(text, count):
    assert units.parse_count(text) == count
    assert isinstance(units.parse_count(text), int)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("98MiB", 98 * 2**20),
        ("98 MiB", 98 * 2**20),
        ("102MB", 102e6),
        ("1.5GB", 1.5e9),
        ("630kB", 630e3),
        ("630KB", 630e3),
        ("1KiB", 1024),
        ("2TiB", 2 * 2**40),
        ("3PB", 3e15),
        ("512B", 512),
        ("512", 512),
    ],
)
def test_sizes(text, size):
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "flop"),
    [
        ("24.6 GFLOP", 24.6e9),
        ("24.6GFLOPs", 24.6e9),
        ("2.46e10", 2.46e10),
        ("1 PFLOP", 1e15),
        ("878 G", 878e9),
        ("5FLOP", 5),
    ],
)
def test_floating_point_operations(text, flop):
    assert units.parse_flop(text) == pytest.approx(flop)


@pytest.mark.parametrize(
    ("text", "both"),
    [("1..16", (1, 16)), (" 1 .. 16 ", (1, 16)), ("8", (8, 8)), (8, (8, 8)), ("1k..2k", (1000, 2000))],
)
def test_ranges(text, both):
    assert units.parse_count_range(text) == both


@pytest.mark.parametrize("zero", ["0", 0, "0.0", " 0 "])
def test_no_bytes_where_none_is_an_answer(zero):
    assert units.parse_bytes_or_zero(zero) == 0
    with pytest.raises(ValueError, match="above zero"):
        units.parse_bytes(zero)


@pytest.mark.parametrize(
    ("parser", "text", "message"),
    [
        (units.parse_seconds, "1h", "'1h' is not a number of seconds; write 0.0085 or 8.5ms"),
        (units.parse_hours, "24", "'24' is not a duration; write 24h, 90min or 1d12h"),
        (units.parse_hours, 24, "is not a duration"),
        (units.parse_hours, "24 parsecs", "is not a duration"),
        (units.parse_hours, "h", "is not a duration"),
        (units.parse_hours, "24h!", "is not a duration"),
        (units.parse_hours, "-24h", "'-24h' must be above zero"),
        (units.parse_hours, "1e300h", "too large to be real"),
        (units.parse_hours, "1e-300h", "too small to be real"),
        (units.parse_usd, "€400", "is not an amount of dollars; write $400"),
        (units.parse_usd, "$", "is not an amount of dollars"),
        (units.parse_usd, "$-5", "above zero"),
        (units.parse_usd, "nan", "is not an amount"),
        (units.parse_count, "1.5", "'1.5' is not a whole number"),
        (units.parse_count, "115 m", "is not a count; write 1281167 or 115M"),
        (units.parse_count, "١٢", "is not a count"),
        (units.parse_count, "inf", "is not a count"),
        (units.parse_count, "1e999", "too large"),
        (units.parse_bytes, "98mb", "is not a size"),
        (units.parse_flop, "24.6 GFLOPS/s", "is not a number of floating point operations"),
        (units.parse_count_range, "1..", "is open at one end; write 1..16"),
        (units.parse_count_range, "..", "is open at one end"),
        (units.parse_count_range, "16..1", "has its minimum above its maximum; write 1..16"),
        (units.parse_count_range, "-1..4", "above zero"),
        (units.parse_count_range, "1...4", "is not a whole number"),
    ],
)
def test_refusals_say_what_to_write(parser, text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is checked below, without a pattern's escapes)
        parser(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("value", [True, False, None, "", " ", [], ["24h"], {}, "9" * 5000, b"24h"])
def test_other_types_are_refused(parser, value):
    with pytest.raises(ValueError, match=r"^(?s:.)+$"):
        parser(value)


@pytest.mark.parametrize("parser", PARSERS)
@given(st.one_of(st.text(max_size=60), ALMOST_UNITS, st.floats(), st.integers()))
def test_any_input_is_a_finite_amount_or_a_value_error(parser, value):
    try:
        parsed = parser(value)
    except ValueError:
        return
    amounts = parsed if isinstance(parsed, tuple) else (parsed,)
    assert all(0 <= amount <= 1e30 and math.isfinite(amount) for amount in amounts)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", ["1" + " " * 100_000 + "!", "." * 100_000 + " ", "1_" * 50_000 + "!", " " * 100_000])
def test_long_text_is_refused_at_once(parser, text):
    started = time.process_time()
    with pytest.raises(ValueError, match=r"is not|open"):
        parser(text)
    assert time.process_time() - started < 1


@given(st.floats(min_value=0.01, max_value=1e9))
def test_dollars_that_are_shown_read_back_within_a_rounding(usd):
    assert units.parse_usd(units.format_usd(usd)) == pytest.approx(usd, abs=0.00501 if usd < 100 else 0.501)


@given(st.floats(min_value=1 / 60, max_value=1e6))
def test_hours_that_are_shown_read_back_within_a_rounding(hours):
    tolerance = 0.5 / 60 if hours < 1 else 0.05 if hours < 100 else 0.5
    assert units.parse_hours(units.format_hours(hours)) == pytest.approx(hours, abs=tolerance * 1.001)


@given(st.integers(min_value=1, max_value=10**15))
def test_counts_that_are_shown_read_back_to_three_digits(count):
    assert units.parse_samples(units.format_count(count)) == pytest.approx(count, rel=0.0051)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_range_reads_back(first, second):
    low, high = sorted((first, second))
    assert units.parse_count_range(f"{low}..{high}") == (low, high)


@given(st.floats(0, 1, allow_nan=False))
def test_a_probability_is_never_shown_as_certain(probability):
    shown = units.format_probability(probability)
    assert shown != "100 %"
    assert (shown == "0 %") == (probability == 0)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.format_usd(22.456), "$22.46"),
        (units.format_usd(1407.2), "$1,407"),
        (units.format_hours(0.75), "45 min"),
        (units.format_hours(24), "24 h"),
        (units.format_hours(9.14), "9.1 h"),
        (units.format_hours(1234.5), "1,234 h"),
        (units.format_count(115_305_030), "115 M"),
        (units.format_count(9999), "9,999"),
        (units.format_percent(0.912), "91 %"),
        (units.format_percent(0.001), "<1 %"),
        (units.format_percent(0.005), "<1 %"),
    ],
)
def test_what_people_read(shown, expected):
    assert shown == expected
