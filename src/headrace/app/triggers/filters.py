"""Which records call a trigger's target: an expression over one record, without eval.

The language is a small part of Python's own expression syntax, so there is nothing new to learn:

    value.amount > 100 and value.country in ("DE", "FR")
    exists(value.coupon) and not startswith(key, "test-")
    headers["kind"] == "refund" or topic == "refunds"

Names: `topic`, `partition`, `offset`, `timestamp` (milliseconds), `key` (text), `headers` (text by
name), `value` (the decoded JSON, or text if it is not JSON). A missing field is `None`, at any
depth, and a comparison of values that cannot be compared is false: a filter never fails on a
record, it only rejects it. The expression is parsed once, checked against a list of allowed nodes
and turned into nested functions; nothing of it is ever compiled or executed as Python.

Not done: arithmetic, regular expressions, loops. Length and depth are bounded.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.app.message import Message
from headrace.client.records import Record

Facts = Mapping[str, Any]
Term = Callable[[Facts], Any]

NAMES = frozenset({"topic", "partition", "offset", "timestamp", "key", "headers", "value"})

# Long enough for any filter a person writes; short enough that parsing it costs nothing.
LONGEST_EXPRESSION = 2_000
DEEPEST_EXPRESSION = 40


class FilterRefused(ValueError):
    """The expression is not valid in this language; the message has the place and the reason."""


class Filter:
    """One checked expression: `accepts(facts)` says whether a record passes."""

    __slots__ = ("_term", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._term = _parse(expression)

    def accepts(self, facts: Facts) -> bool:
        return bool(self._term(facts))


def facts_of(record: Record | Message) -> dict[str, Any]:
    """The names that a filter can use."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "headers": {
            name: None if value is None else value.decode(errors="replace")
            for name, value in record.headers
        },
        "value": _decoded(record.value),
    }


def _decoded(value: bytes | None) -> Any:
    """The JSON document, else the text; None, as if absent, if the bytes are not text."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parse(expression: str) -> Term:
    if len(expression) > LONGEST_EXPRESSION:
        raise FilterRefused(f"a filter has at most {LONGEST_EXPRESSION} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as problem:
        before = len(expression) - len(expression.lstrip())
        # Python gives no position for an expression that ends too early.
        at = before + (problem.offset or len(expression.strip()) + 1)
        raise FilterRefused(
            f"cannot read the filter {expression!r}: {problem.msg} at character {at}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as problem:
        raise FilterRefused(f"cannot read the filter {expression!r}: {problem}") from None
    try:
        return _term(tree.body, depth=0)
    except RecursionError:  # a tree may also be too deep to be refused node by node
        raise FilterRefused(f"a filter is nested at most {DEEPEST_EXPRESSION} deep") from None


def _term(node: ast.expr, depth: int) -> Term:
    if depth > DEEPEST_EXPRESSION:
        raise FilterRefused(f"a filter is nested at most {DEEPEST_EXPRESSION} deep")
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None as constant):
            return lambda facts: constant
        case ast.Name(id=name) if name in NAMES:
            return lambda facts: facts.get(name)
        case ast.Name(id=name):
            raise FilterRefused(f"{name!r} is not known; a filter sees {', '.join(sorted(NAMES))}")
        case ast.Attribute(value=inner, attr=field):
            return _field(_term(inner, depth + 1), field)
        case ast.Subscript(value=inner, slice=index):
            return _item(_term(inner, depth + 1), _term(index, depth + 1))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            denied = _term(operand, depth + 1)
            return lambda facts: not denied(facts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            negative = -number
            return lambda facts: negative
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [_term(value, depth + 1) for value in values]
            return lambda facts: all(part(facts) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_term(value, depth + 1) for value in values]
            return lambda facts: any(part(facts) for part in parts)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [_term(element, depth + 1) for element in elements]
            return lambda facts: tuple(item(facts) for item in items)
        case ast.Compare():
            return _comparison(node, depth)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments, depth)
    raise FilterRefused(f"{ast.unparse(node)!r} is not part of the filter language")


def _field(inner: Term, field: str) -> Term:
    def read(facts: Facts) -> Any:
        owner = inner(facts)
        return owner.get(field) if isinstance(owner, Mapping) else None

    return read


def _item(inner: Term, index: Term) -> Term:
    def read(facts: Facts) -> Any:
        owner, at = inner(facts), index(facts)
        if isinstance(owner, Mapping):
            return owner.get(at) if isinstance(at, str | int) else None
        if isinstance(owner, Sequence) and isinstance(at, int) and -len(owner) <= at < len(owner):
            return owner[at]
        return None

    return read


def _is_in(item: Any, container: Any) -> bool:
    return container is not None and item in container


def _is_not_in(item: Any, container: Any) -> bool:
    return not _is_in(item, container)


COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _is_in,
    ast.NotIn: _is_not_in,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def _comparison(node: ast.Compare, depth: int) -> Term:
    terms = [_term(each, depth + 1) for each in (node.left, *node.comparators)]
    checks = [COMPARISONS[type(op)] for op in node.ops]

    def compare(facts: Facts) -> bool:
        left = terms[0](facts)
        for check, term in zip(checks, terms[1:], strict=True):
            right = term(facts)
            try:
                if not check(left, right):
                    return False
            except (TypeError, RecursionError):  # a number against a text; documents too deep
                return False
            left = right
        return True

    return compare


def _exists(thing: Any) -> bool:
    return thing is not None


def _starts_with(text: Any, start: Any) -> bool:
    return isinstance(text, str) and isinstance(start, str) and text.startswith(start)


def _ends_with(text: Any, end: Any) -> bool:
    return isinstance(text, str) and isinstance(end, str) and text.endswith(end)


def _length(thing: Any) -> int:
    return len(thing) if isinstance(thing, str | Sequence | Mapping) else 0


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


# name -> (number of arguments, the function)
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "exists": (1, _exists),
    "startswith": (2, _starts_with),
    "endswith": (2, _ends_with),
    "len": (1, _length),
    "lower": (1, _lower),
}


def _call(name: str, arguments: list[ast.expr], depth: int) -> Term:
    if name not in FUNCTIONS:
        raise FilterRefused(f"{name}() is not known; a filter has {', '.join(sorted(FUNCTIONS))}")
    count, function = FUNCTIONS[name]
    if len(arguments) != count or any(isinstance(each, ast.Starred) for each in arguments):
        raise FilterRefused(f"{name}() takes {count} argument{'s' if count > 1 else ''}")
    terms = [_term(argument, depth + 1) for argument in arguments]
    return lambda facts: function(*(term(facts) for term in terms))
