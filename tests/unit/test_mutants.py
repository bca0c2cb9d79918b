"""The mutants themselves: each is one small change, named so that an edit elsewhere leaves it as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from changes import changes, mutated, normal
from run import REPOSITORY, SURVIVORS, Judged, Verdict, drawn, reasons

RANKING = [REPOSITORY / "planner" / "search" / "ranking.py"]
SOURCE = '''\
"""Texts are not changed."""

from __future__ import annotations  # nor imports

LIMIT = 3  # kept


def first(rows: list[int | None], *, last: bool = False) -> int | None:
    """Annotations neither."""
    if not rows:
        return None
    total = max(
        rows[0],
        -len(rows),
    )
    return total if total < LIMIT and last else total * 2
'''


def told(source: str) -> list[tuple[str, str, str]]:
    return [(change.function, change.before, change.after) for change in changes(source, "x.py")]


def test_every_small_change_of_a_source_and_no_other() -> None:
    returned = "return total if total < LIMIT and last else total * 2"
    assert told(SOURCE) == [
        ("LIMIT", "3", "4"),
        ("LIMIT", "3", "2"),
        ("first", "False", "True"),
        ("first", "not rows", "rows"),
        ("first", "max(rows[0], -len(rows))", "min(rows[0], -len(rows))"),
        ("first", "0", "1"),
        ("first", "0", "-1"),
        ("first", "-len(rows)", "len(rows)"),
        ("first", returned, "return None"),
        ("first", "total < LIMIT and last", "total < LIMIT or last"),
        ("first", "total < LIMIT and last", "not (total < LIMIT and last)"),
        ("first", "total < LIMIT", "total <= LIMIT"),
        ("first", "total < LIMIT", "total >= LIMIT"),
        ("first", "total * 2", "total / 2"),
        ("first", "2", "3"),
        ("first", "2", "1"),
    ]


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("total += many", ["pass"]),
        ("note(total)", ["pass"]),
        ("raise ValueError(total)", ["pass"]),
        ("total = pick(rows, key=len)", ["pick(rows)"]),
        ("total = Pick(rows, key=len)", []),  # a class without one of its fields only crashes
        ("rows = list(zip(rows, rows, strict=True))", []),
        ("total = a | b", ["a & b"]),
        ("total = a ** b", ["a * b"]),
        ("total = a is b", ["a is not b"]),
        ("total = np.minimum(a, b)", ["np.maximum(a, b)"]),
        ("total = [each for each in rows if each]", ["not each"]),
    ],
)
def test_what_becomes_of_a_statement(statement: str, after: list[str]) -> None:
    assert [new for _, _, new in told(f"def first(rows):\n    {statement}\n")] == after


def test_a_mutant_differs_from_the_source_in_its_one_place() -> None:
    lines = normal(SOURCE).splitlines()
    for change in changes(SOURCE, "x.py"):
        new = mutated(SOURCE, change)
        ast.parse(new)
        differing = [
            number for number, pair in enumerate(zip(lines, new.splitlines(), strict=True), 1) if len({*pair}) > 1
        ]
        assert differing == [change.normal_line]


def test_lines_are_those_of_the_file_and_keys_are_each_their_own() -> None:
    found = changes(SOURCE, "x.py")
    assert {change.line for change in found} == {5, 8, 10, 12, 16}
    assert len({change.key for change in found}) == len(found)
    moved = changes("\n\n# more\n" + SOURCE.replace("LIMIT = 3", "LIMIT = 3\nOTHER = 5"), "x.py")
    assert {change.key for change in found} < {change.key for change in moved}


def test_constants_and_defaults_are_told_from_what_runs_later() -> None:
    at_import = {change.function for change in changes(SOURCE, "x.py") if change.at_import}
    assert at_import == {"LIMIT"}


def test_a_draw_is_the_same_every_time_and_another_for_another_seed() -> None:
    one, again, other = ([change.key for change in drawn(5, seed, files=RANKING)] for seed in (1, 1, 2))
    assert one == again != other
    more = [change.key for change in drawn(8, 1, files=RANKING)]
    assert more[:5] == one


def test_a_stopped_run_goes_on_and_new_tests_judge_only_what_survived(tmp_path: Path) -> None:
    one, two, three = drawn(3, 1, files=RANKING)
    Judged(tmp_path).keep(Verdict(one, "killed", 2.5))
    Judged(tmp_path).keep(Verdict(two, "survived", 4.0))
    later = Judged(tmp_path)
    assert [later.verdict(each) for each in (one, two, three)] == [
        Verdict(one, "killed", 2.5),
        Verdict(two, "survived", 4.0),
        None,
    ]
    later.tests = "others"
    assert later.verdict(one) == Verdict(one, "killed", 2.5)
    assert later.verdict(two) is None


def test_every_survivor_with_a_reason_is_still_a_mutant() -> None:
    known = reasons(SURVIVORS.read_text(encoding="utf-8"))
    assert known
    assert all(known.values())
    for file in sorted({key.split(" ", 1)[0] for key in known}):
        found = {change.key for change in changes((REPOSITORY / file).read_text(encoding="utf-8"), file)}
        gone = [key for key in known if key.startswith(f"{file} ") and key not in found]
        assert not gone, f"{SURVIVORS.name} explains what is no mutant any more: {gone}"
