"""Training libraries that some scripts of the tests import, and the tests themselves do not: that takes seconds."""

from importlib.util import find_spec

import pytest

_MISSING = [name for name in ("accelerate", "lightning", "transformers") if find_spec(name) is None]
needs_libraries = pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}")
