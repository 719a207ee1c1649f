"""The fingerprint of a Python function changes with what it computes, and with nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.pipelines.spark.function_code import fingerprint

PROGRAM = '''
RATE = 2
WORD = re.compile("a+")

class Scale:
    factor = 3
    def times(self, x): return x * self.factor

def helper(x):
    return x + 1

def function(x):
    """What it does."""
    y = helper(x) * RATE
    return Scale().times(y) if x in {"a", "b", "c"} or WORD.match(str(x)) else sorted([y])
'''


def of(program: str, tmp_path: Path) -> str:
    names: dict[str, Any] = {"re": re, "__name__": "users"}
    # As of a file of the user.
    exec(compile(program, str(tmp_path / "users.py"), "exec"), names)
    module = sys.modules["users"] = ModuleType("users")
    module.__file__ = str(tmp_path / "users.py")
    try:
        return fingerprint(names["function"])
    finally:
        del sys.modules["users"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("helper(x) *", "helper(x) -"),
        ("x + 1", "x + 2"),
        ("RATE = 2", "RATE = 2.5"),
        ("factor = 3", "factor = 4"),
        ("x * self", "x + self"),
        ('"a+"', '"b+"'),
        ('"c"}', '"d"}'),
        ("sorted([y])", "sorted([y], reverse=True)"),
    ],
)
def test_what_it_computes_counts(old: str, new: str, tmp_path: Path) -> None:
    assert PROGRAM.count(old) == 1
    assert of(PROGRAM, tmp_path) != of(PROGRAM.replace(old, new), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""What it does."""', '"""What it does, in other words."""'),
        ("def helper(x):\n", "# Why it is so.\n\n\ndef helper(x):\n    # A comment.\n"),
        ("RATE = 2", "RATE = 2\nUNUSED = 7"),
    ],
)
def test_layout_and_words_do_not(old: str, new: str, tmp_path: Path) -> None:
    assert of(PROGRAM, tmp_path) == of(PROGRAM.replace(old, new), tmp_path)


def test_what_it_closes_over_counts() -> None:
    def made(value: object) -> Any:
        return lambda x: (x, value)

    values = [1, 2, "1", [1, 2], {1: 2}, {"b", "a"}, made(1), made(2), None]
    assert len({fingerprint(made(value)) for value in values}) == len(values)
    assert fingerprint(made({"a", "b"})) == fingerprint(made({"b", "a"}))


def test_functions_that_call_themselves_and_each_other_end() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert fingerprint(even) != fingerprint(odd)
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint(lambda: loop)
