"""A JSON document as a tree: its kinds, its bounds, and nothing of others unescaped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.console.views.json_tree import DEEPEST, MOST_NODES, OPEN_DEPTH, Node, json_tree
from headrace.console.views.payloads import payload


def test_each_part_has_its_kind_and_its_name() -> None:
    tree = json_tree({"id": 7, "tags": ["new", None, True], "at": {}})
    assert tree is not None and (tree.kind, tree.count) == ("object", "3 fields")
    number, tags, at = tree.members
    assert (number.name, number.kind, number.said) == ('"id"', "number", "7")
    assert (tags.kind, tags.count) == ("list", "3 items")
    assert [(each.kind, each.said) for each in tags.members] == [
        ("text", '"new"'),
        ("null", "null"),
        ("true", "true"),
    ]
    assert (at.kind, at.members) == ("object", [])


@pytest.mark.parametrize("document", [7, "text", None])
def test_a_bare_value_needs_no_tree(document: Any) -> None:
    assert json_tree(document) is None


def test_a_document_that_a_page_should_not_hold_has_no_tree() -> None:
    assert json_tree(list(range(MOST_NODES - 1))) is not None
    assert json_tree(list(range(MOST_NODES))) is None
    nested: Any = []
    for _ in range(DEEPEST):
        nested = [nested]
    assert json_tree(nested) is not None
    assert json_tree([nested]) is None


def test_deep_parts_and_long_lists_are_folded_at_first() -> None:
    tree = json_tree({"a": {"b": {"c": {"d": 1}}}, "long": list(range(51))})
    assert tree is not None
    open_at = []
    part: Node = tree
    while part.members:
        open_at.append(part.is_open)
        part = part.members[0]
    assert open_at == [True] * OPEN_DEPTH + [False]
    assert not tree.members[1].is_open


def test_nothing_unprintable_of_others_comes_through() -> None:
    tree = json_tree({"\x1b[31m\u202e": "\u202egnp.exe\x07"})
    assert tree is not None
    said = f"{tree.members[0].name}{tree.members[0].said}"
    assert said.isprintable() and "\\u202e" in said


def test_a_schema_frame_is_named() -> None:
    framed = payload(b"\0\0\0\0\7" + bytes([2, 0xFF]))
    assert framed.note == "looks like Avro, schema id 7"
    assert not payload(json.dumps({"a": 1}).encode()).note
