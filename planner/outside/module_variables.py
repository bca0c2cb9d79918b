"""What the variables of a Terraform module are, each with the text that declares it.

A workspace declares most of them again, since Terraform hands a module nothing by itself. Their text is taken from the
module, so that description, type, default and validations are written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# The text is as `terraform fmt` leaves it: only the first and the last line of a block begin at the margin.
_PART = re.compile(r'(?P<declaration>variable "(?P<name>\w+)" \{\n(?:(?:  .*)?\n)*\})\n|(?:#.*)?\n')


def variables_of(module: Mapping[str, str]) -> dict[str, str]:
    """Name -> declaration, from those files of a module that are named for variables."""
    texts = (text for name, text in module.items() if name.startswith("variables") and name.endswith(".tf"))
    return split_variables("".join(texts))


def split_variables(text: str) -> dict[str, str]:
    """Name -> declaration, in their order. Comments between declarations are left out; anything else is refused."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"expected a variable block or a comment: {text[position:].partition(chr(10))[0]!r}")
        if part["name"] in found:
            raise ValueError(f"variable {part['name']} is declared twice")
        if part["name"]:
            found[part["name"]] = part["declaration"]
        position = part.end()
    return found
