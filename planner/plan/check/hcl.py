"""What a small Terraform file says, as far as that shows without evaluating it: its blocks and attributes, by name.

Enough for a backend or for values; what would need more (templates, heredocs) is refused, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = re.compile(r"[\w.-]+")
_DEEPEST = 20
_OPENING, _CLOSING = "{[(", "}])"


class Statement(NamedTuple):
    """`backend "s3" {` inside `terraform {` is the block `backend` in ("terraform",)."""

    inside: tuple[str, ...]
    name: str
    is_block: bool


def statements(text: str) -> list[Statement]:
    """In their order; ValueError says what cannot be read."""
    found: list[Statement] = []
    blocks: list[str] = []  # that are open
    words: list[str] = []  # of this line
    for token in _without_values(_tokens(text)):
        match token:
            case "{" if len(blocks) == _DEEPEST:
                raise ValueError("blocks nested too deeply")
            case "{" if words:
                found.append(Statement(tuple(blocks), words[0], is_block=True))
                blocks.append(words[0])
                words = []
            case "=" if words:
                found.append(Statement(tuple(blocks), words[0], is_block=False))
            case "}" if blocks:
                blocks.pop()
                words = []
            case "\n":
                words = []
            case "{" | "}" | "[" | "]" | "(" | ")" | "=":
                raise ValueError(f"an unexpected {token}")
            case _:
                words.append(token)
    if blocks:
        raise ValueError("a block without an end")
    return found


def _without_values(tokens: Iterator[str]) -> Iterator[str]:
    """What follows an equals sign is left out, up to the end of its line or of its block."""
    in_value, brackets = False, 0
    for token in tokens:
        if not in_value:
            in_value = token == "="  # noqa: S105 (no password)
            yield token
        elif token in _OPENING:
            brackets += 1
        elif brackets:
            brackets -= token in _CLOSING
        elif token in ("\n", "}"):
            in_value = False
            yield token
    if brackets:
        raise ValueError("a bracket without an end")


def _tokens(text: str) -> Iterator[str]:
    """Words, strings without their content, brackets, equals signs and line ends."""
    position = 0
    while position < len(text):
        character = text[position]
        if text.startswith(("#", "//"), position):
            position = _end_of(text, "\n", position) - 1
        elif text.startswith("/*", position):
            position = _end_of(text, "*/", position + 2)
        elif character == '"':
            position = _end_of_string(text, position + 1)
            yield '"'
        elif text.startswith("<<", position):
            raise ValueError("a heredoc")
        elif word := _WORD.match(text, position):
            position = word.end()
            yield word[0]
        else:
            position += 1
            if character == "\n" or not character.isspace():
                yield character


def _end_of(text: str, mark: str, position: int) -> int:
    found = text.find(mark, position)
    if found < 0 and mark == "\n":
        return len(text) + 1
    if found < 0:
        raise ValueError("a comment without an end")
    return found + len(mark)


def _end_of_string(text: str, position: int) -> int:
    while position < len(text) and text[position] not in '"\n':
        if text.startswith(("${", "%{"), position):
            raise ValueError("a template")
        position += 2 if text[position] == "\\" else 1
    if text[position : position + 1] != '"':
        raise ValueError("a string without an end")
    return position + 1
