"""Hands the batch to scripts that use Hugging Face's Trainer or Accelerate, or Lightning, which need not know of it.

An adapter is told when the script has imported its library, and speaks to it by the library's own configuration. What
the script does not import is not imported. Placeholders come first: with one in the command the batch is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from probes.adapters import accelerate, lightning, transformers
from probes.adapters.requested_run import RequestedRun

_ADAPTERS: dict[str, Callable[[Any, RequestedRun], None]] = {
    "transformers.training_args": transformers.adapt_arguments,
    "transformers.trainer": transformers.adapt_trainer,
    "accelerate.accelerator": accelerate.adapt,
    "lightning.pytorch.trainer.trainer": lightning.adapt,
    "pytorch_lightning.trainer.trainer": lightning.adapt,  # the same library under its older name
}


def install(asked: RequestedRun) -> None:
    """Before the script begins, though something else may have imported a library already."""
    sys.meta_path.insert(0, _AfterImport(asked))
    for name, adapt in _ADAPTERS.items():
        if name in sys.modules:
            adapt(sys.modules[name], asked)


class _AfterImport(MetaPathFinder):
    """Finds what the others find, and has it adapted as soon as it is there."""

    def __init__(self, asked: RequestedRun) -> None:
        self.asked = asked

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _ADAPTERS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if found is not None and found.loader is not None:
            self._adapt_after(found.loader)
        return found

    def _adapt_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _ADAPTERS[module.__name__](module, self.asked)

        loader.exec_module = exec_module
