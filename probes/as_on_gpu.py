"""Lets a machine without a GPU keep what a GPU would keep, so that the sizes of a script's steps are true.

Autocast for a GPU is done on the processor, at the same width; PyTorch would switch it off. Attention is left without
its dropout: a GPU's fused kernel draws that anew in the backward, a processor would keep every score and its mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


class AsOnGpu:
    """What the script asked a GPU for, and got from the processor."""

    def __init__(self) -> None:
        self.autocast_dtype: torch.dtype | None = None
        self.attention_dropout = False

    def install(self) -> None:
        if not torch.cuda.is_available():
            self._autocast_here()
            self._attend_without_dropout()

    def _autocast_here(self) -> None:
        original = torch.amp.autocast_mode.autocast.__init__

        def init(
            context: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            if device_type == "cuda" and enabled:
                self.autocast_dtype = dtype or torch.get_autocast_dtype("cuda")
                # Both are two bytes wide, and a processor is slow at half precision.
                here = torch.bfloat16 if self.autocast_dtype is torch.float16 else self.autocast_dtype
                device_type, dtype = "cpu", here
            original(context, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

        torch.amp.autocast_mode.autocast.__init__ = init  # type: ignore[method-assign,assignment]

    def _attend_without_dropout(self) -> None:
        original = functional.scaled_dot_product_attention

        def attend(
            query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **options: Any
        ) -> Any:
            self.attention_dropout = self.attention_dropout or dropout_p > 0
            return original(query, key, value, attn_mask, 0.0, *args, **options)

        functional.scaled_dot_product_attention = attend

    def notes(self) -> list[str]:
        notes = []
        if self.autocast_dtype is not None:
            notes.append("autocast for a GPU ran on the processor, which takes it for other operators than a GPU does")
        if self.attention_dropout:
            notes.append("attention ran without its dropout, of which a GPU's fused kernel keeps nothing")
        return notes
