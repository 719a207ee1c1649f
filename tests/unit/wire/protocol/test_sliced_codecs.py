"""The codecs of long messages: the plain ones, with a turn for others before each element."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.node.steps import at_once
from headrace.wire.protocol import messages

FOLDER = Path(messages.__file__).parent
MANY = 1_000


class WithoutTurns(ast.NodeTransformer):
    """Takes the yields out of a generator; `turns` counts them, `loops` the loops of statements."""

    def __init__(self) -> None:
        self.turns = self.loops = 0

    def visit_For(self, node: ast.For) -> ast.For:
        self.loops += 1
        assert isinstance(node.body[0], ast.Expr), ast.unparse(node)
        assert isinstance(node.body[0].value, ast.Yield), ast.unparse(node)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        if isinstance(node.value, ast.Yield):
            self.turns += 1
            return None
        return node


def functions(name: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_is_the_plain_codec_with_a_turn_before_each_element() -> None:
    loops = 0
    for name in messages.API_MODULES.values():
        plain = functions(f"{name}.py")
        for label, sliced in functions(f"sliced/{name}.py").items():
            found = WithoutTurns()
            found.visit(sliced)
            assert found.turns == found.loops + 1, (name, label)
            loops += found.loops
            assert [ast.unparse(line) for line in sliced.body if line] == [
                ast.unparse(line) for line in plain[label].body
            ], (name, label)
    assert loops > 300


def test_both_have_the_same_versions() -> None:
    for name in messages.API_MODULES.values():
        plain, sliced = messages.load(name), messages.load_sliced(name)
        assert list(sliced.DECODE_REQUEST) == list(plain.DECODE_REQUEST)
        assert list(sliced.ENCODE_RESPONSE) == list(plain.ENCODE_RESPONSE)


def encoded(module: ModuleType, table: str, version: int, message: Any) -> bytes:
    pieces: list[Any] = []
    getattr(module, table)[version](message, pieces.append)
    return b"".join(pieces)


def test_a_long_request_and_its_answer() -> None:
    plain, sliced = messages.load("delete_groups"), messages.load_sliced("delete_groups")
    names = [f"group-{number}" for number in range(MANY)]
    request = plain.DeleteGroupsRequest(names)
    wire = memoryview(encoded(plain, "ENCODE_REQUEST", 2, request))
    decoding = sliced.DECODE_REQUEST[2](wire, 0)
    turns = sum(1 for _ in range(MANY + 1) if next(decoding) is None)
    assert turns == MANY + 1  # one before the first line, one before each element
    assert at_once(decoding) == (request, len(wire))

    answer = plain.DeleteGroupsResponse(
        results=[plain.DeletableGroupResult(name, 0) for name in names]
    )
    pieces: list[Any] = []
    assert sum(1 for _ in sliced.ENCODE_RESPONSE[2](answer, pieces.append)) == MANY + 1
    assert b"".join(pieces) == encoded(plain, "ENCODE_RESPONSE", 2, answer)
