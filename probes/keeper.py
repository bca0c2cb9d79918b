"""`python -m probes.keeper FOLDER MARK`: waits until whoever started it is gone, then removes what that one left.

A worker of Ray may be killed at any moment, by scav, by Ray or by kill -9, and never gets to tidy up. What it started
bears its mark, and what it wrote lies in its folder. Its end is the end of the keeper's standard input. Ray kills the
children of a worker with it, so the keeper is none: the process that was started ends once the keeper is there.
"""

from __future__ import annotations

import os
import shutil
import sys

from probes.marked import kill_marked

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    sys.stdin.buffer.read()
    kill_marked(sys.argv[2])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
