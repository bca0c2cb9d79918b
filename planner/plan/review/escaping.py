"""Text that somebody else wrote, made harmless in Markdown: names of a catalogue, sentences of a plan file.

A pull request may bring both, and its comment is read by people who trust scav.
"""

from __future__ import annotations

import re

from planner.errors import one_line

_LONGEST = 2000
_SYNTAX = re.compile(r"[\\`*_\[\]|~]|<(?=[A-Za-z/!?])|&(?=[#\w])")
# GitHub and GitLab make links of these in the rendered text, where a backslash is gone: something invisible is put
# behind the first character.
_LINKS = re.compile(r"[@#]|!(?=\d)|:(?=//)|www(?=\.)", re.IGNORECASE)
_APART = "\u2060"


class Markup(str):
    """Markdown of our own."""

    __slots__ = ()


def escaped(text: str) -> str:
    """Shows as it is written, on one line: no link, no mention, no image, no HTML, no cell of its own."""
    if isinstance(text, Markup):
        return text
    return _LINKS.sub(rf"\g<0>{_APART}", _SYNTAX.sub(r"\\\g<0>", one_line(text, _LONGEST)))


def paragraph(text: str) -> str:
    """At the beginning of a line, where a heading, a list or a command of GitLab's could begin."""
    return escaped(text) if text[:1] not in tuple("/#-+=>") else f"\\{escaped(text)}"


def literal(text: str) -> Markup:
    """As code, which nothing in it can end."""
    return Markup(f"`{one_line(text, _LONGEST).replace('`', chr(39)).replace('|', '¦')}`")
