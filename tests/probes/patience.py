"""How long a test waits before it calls something lost.

Minutes, because a busy machine takes one of them to import torch: what is late is no failure, what never comes is.
"""

PATIENCE_SECONDS = 1200
