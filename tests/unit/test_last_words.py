"""What a failing script said, without what its launcher says about it."""

from __future__ import annotations

from probes.last_words import last_lines, last_words

REPORT = """\
E1118 04:00:00.1 12 torch/distributed/elastic/multiprocessing/api.py:900] failed (exitcode: 2) local_rank: 0 of binary
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
probes.run FAILED
Root Cause (first observed failure):
============================================================"""
USAGE = """\
usage: train.py [-h] --lr LR
                [--epochs N]
train.py: error: the following arguments are required: --lr"""


def test_usage_comes_whole_once_and_without_the_launchers_report() -> None:
    noise = "W1118 torch/distributed/run.py:851] a warning\nloading data\n"
    said = f"{noise}{USAGE}\n{USAGE}\n{REPORT}".splitlines()
    assert last_lines(said) == USAGE.splitlines()


def test_a_node_that_is_read_last_has_the_word() -> None:
    said = f"{REPORT}\nValueError: no data here\n{REPORT}".splitlines()
    assert last_lines(said) == ["ValueError: no data here"]
    assert last_words(said) == "ValueError: no data here"


def test_only_the_end_of_a_long_story_is_told() -> None:
    assert last_lines(f"line {number}" for number in range(100)) == [f"line {number}" for number in range(85, 100)]


def test_a_launcher_that_was_ended_says_nothing_of_the_script() -> None:
    ended = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 88, in _run_code
  File "/lib/torch/distributed/run.py", line 990, in <module>
    main()
torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15
"""
    assert last_lines(f"loading data\n{ended}".splitlines()) == ["loading data"]


def test_a_traceback_begins_in_the_script() -> None:
    log = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "<frozen runpy>", line 88, in _run_code
  File "/somewhere/probes/run.py", line 100, in <module>
    end(main(sys.argv[1:]))
        ^^^^^^^^^^^^^^^^^^
  File "/somewhere/probes/run.py", line 59, in run_as_main
    runpy.run_path(str(script), run_name="__main__")
  File "<frozen runpy>", line 290, in run_path
  File "train.py", line 7, in <module>
    main()
  File "/home/me/probes/running.py", line 1
    def f(:
          ^
SyntaxError: invalid syntax
"""
    assert last_lines(log.splitlines()) == [
        "Traceback (most recent call last):",
        '  File "train.py", line 7, in <module>',
        "    main()",
        '  File "/home/me/probes/running.py", line 1',
        "    def f(:",
        "          ^",
        "SyntaxError: invalid syntax",
    ]
