"""A plain function as a generator that yields at the beginning of each round of its `for` loops.

The codecs, and handlers that go through a long request, are straight-line functions with loops:
fast, and easy to read. For a message with a hundred thousand elements they would hold the loop of
the node. `in_steps` makes a twin of the same source that can be left and gone on with between two
elements (`node/serving/slices.py`), so that nothing is written twice. Made at its first use: a
start must not pay for it. Comprehensions and functions that it calls are one step each. Only for
functions of a module and methods without closures.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Any

Steps = Generator[Any, None, Any]


@cache
def in_steps(function: Callable[..., Any]) -> Callable[..., Steps]:
    import __future__

    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    for node in ast.walk(definition):
        if isinstance(node, ast.For):
            node.body.insert(0, ast.Expr(ast.Yield(None)))
    definition.body.insert(0, ast.Expr(ast.Yield(None)))  # also without loops it is a generator
    definition.decorator_list = []
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    # All modules begin with this future import, so that annotations are not evaluated.
    flags = __future__.annotations.compiler_flag
    code = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    namespace: dict[str, Any] = {}
    exec(code, function.__globals__, namespace)
    twin: Callable[..., Steps] = namespace[definition.name]
    return twin


def steps_of(function: Callable[..., Any]) -> Callable[..., Steps]:
    """Makes the twin when it is first called."""

    def begin(*arguments: Any) -> Steps:
        return in_steps(function)(*arguments)

    return begin


def at_once(steps: Steps) -> Any:
    """The result of steps that are few enough for one turn."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
