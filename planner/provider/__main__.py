"""`python -m planner.provider`: what the installed launcher starts, once it has looked at the code."""

from __future__ import annotations

import contextlib
import gc
import sys

from planner.errors import ScavError


def run() -> int:
    """A problem before the handshake is the one line on stdout, which Terraform then shows."""
    gc.disable()  # there is no garbage yet, and looking for it takes a twentieth of the time until the handshake
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a package that greets who imports it
            from planner.provider.server import serve
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        print(f"scav: the package {missing} is missing: pip install 'scav-planner[provider]'")
        return 1
    finally:
        gc.freeze()  # what was imported stays
        gc.enable()
    try:
        serve()
    except ScavError as error:
        print(f"scav: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
