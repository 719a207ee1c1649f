"""A JSON document as a tree that a page can fold and colour. Pure.

Names and texts are escaped as everywhere; the template escapes them once more for HTML. A document
with too many parts, or nested too deeply, has no tree: the page shows it as plain text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headrace.foreign_text import escaped

MOST_NODES = 2_000
DEEPEST = 30
LONGEST_TEXT = 8 << 10
# Parts below this depth, and parts with more members than this, are folded at first.
OPEN_DEPTH, OPEN_MEMBERS = 3, 50


@dataclass(slots=True)
class Node:
    kind: str  # object, list, text, number, true, false or null
    said: str  # of a part without members: as JSON
    name: str | None = None  # in its object
    members: list[Node] = field(default_factory=list)
    is_open: bool = True

    @property
    def count(self) -> str:
        word = "field" if self.kind == "object" else "item"
        return f"{len(self.members):,} {word}{'' if len(self.members) == 1 else 's'}"


class _TooMuch(Exception):
    """The document has more parts than a page should hold."""


def json_tree(document: Any) -> Node | None:
    """Returns the tree; None if the value is neither an object nor a list, or is too large."""
    if not isinstance(document, (dict, list)):
        return None
    try:
        return _node(document, None, 0, [0])
    except _TooMuch:
        return None


def _node(part: Any, name: str | None, depth: int, made: list[int]) -> Node:
    made[0] += 1
    if made[0] > MOST_NODES or depth > DEEPEST:
        raise _TooMuch
    label = None if name is None else _text(name)
    if isinstance(part, dict):
        members = [_node(value, key, depth + 1, made) for key, value in part.items()]
    elif isinstance(part, list):
        members = [_node(value, None, depth + 1, made) for value in part]
    else:
        return Node(_kind(part), _text(part), label)
    is_open = depth < OPEN_DEPTH and len(members) <= OPEN_MEMBERS
    return Node("object" if isinstance(part, dict) else "list", "", label, members, is_open)


def _kind(part: Any) -> str:
    if part is None:
        return "null"
    if isinstance(part, bool):
        return "true" if part else "false"
    return "text" if isinstance(part, str) else "number"


def _text(part: Any) -> str:
    said = json.dumps(part, ensure_ascii=False)
    cut = said if len(said) <= LONGEST_TEXT else said[:LONGEST_TEXT] + "…"
    return escaped(cut)
