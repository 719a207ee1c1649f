"""A fingerprint of a Python function's code, to see that it changed since a checkpoint was made.

It covers what decides the function's results and can be seen without running it: the bytecode, its
constants, the values that it closes over, and the globals that it names: plain values, and
functions and classes of the user's own files, followed to any depth. Comments, layout and
docstrings do not count. Not seen: packages that are installed, values that are neither plain nor
code (a model, a connection), files and services that the function reads, names that are looked up
while it runs. Bytecode differs between versions of Python, so compare only within one.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sysconfig
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PLAIN = (type(None), bool, int, float, complex, str, bytes)
INSTALLED = tuple(
    sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def fingerprint(function: object) -> str:
    """Returns sixteen hexadecimal digits."""
    text = "\n".join(_lines(function, set()))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _lines(value: object, seen: set[int]) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield repr(value)
    elif id(value) in seen:
        yield "again"
    else:
        seen.add(id(value))
        yield from _lines_of_object(value, seen)


def _lines_of_object(value: object, seen: set[int]) -> Iterator[str]:
    match value:
        case list() | tuple():
            yield type(value).__name__
            for one in value:
                yield from _lines(one, seen)
        case set() | frozenset():
            yield "set"
            yield from sorted("\n".join(_lines(one, seen)) for one in value)
        case Mapping():
            yield "mapping"
            for key, one in value.items():
                yield from _lines(key, seen)
                yield from _lines(one, seen)
        case FunctionType():
            yield from _lines_of_function(value, seen)
        case MethodType():
            yield from _lines(value.__func__, seen)
            yield from _lines(value.__self__, seen)
        case functools.partial():
            yield "partial"
            for one in (value.func, value.args, value.keywords):
                yield from _lines(one, seen)
        case re.Pattern():
            yield f"pattern {value.pattern!r} {value.flags}"
        case type():
            yield from _lines_of_class(value, seen)
        case _:
            yield f"a {type(value).__qualname__}"
            if callable(value) and not inspect.isbuiltin(value):
                yield from _lines(type(value), seen)
                yield from _lines(getattr(value, "__dict__", {}), seen)


def _lines_of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield f"function {function.__qualname__}"
    yield from _lines(function.__defaults__, seen)
    yield from _lines(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        try:
            yield from _lines(cell.cell_contents, seen)
        except ValueError:  # a variable that has no value yet
            yield "empty"
    if not _is_users(function.__code__.co_filename):
        return
    yield from _lines_of_code(function.__code__, function.__doc__)
    names = sorted(_names(function.__code__))
    for name in names:
        if name in function.__globals__:
            yield f"global {name}"
            yield from _lines_of_global(function.__globals__[name], names, seen)


def _lines_of_global(value: Any, names: list[str], seen: set[int]) -> Iterator[str]:
    if not isinstance(value, ModuleType):
        yield from _lines(value, seen)
        return
    yield f"module {value.__name__}"
    if _is_users(getattr(value, "__file__", None)):
        for name in names:
            if hasattr(value, name):
                yield from _lines(getattr(value, name), seen)


def _lines_of_class(kind: type, seen: set[int]) -> Iterator[str]:
    yield f"class {kind.__module__}.{kind.__qualname__}"
    try:
        file = inspect.getfile(kind)
    except (TypeError, OSError):  # of Python itself, or of a session
        return
    if not _is_users(file):
        return
    for base in kind.__bases__:
        yield from _lines(base, seen)
    for name, value in sorted(vars(kind).items()):
        unwrapped = getattr(value, "__func__", value)
        if isinstance(unwrapped, (FunctionType, *PLAIN)) and name not in ("__module__", "__doc__"):
            yield name
            yield from _lines(unwrapped, seen)


def _lines_of_code(code: CodeType, documented: str | None = None) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join((*code.co_names, "/", *code.co_varnames, "/", *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of_code(constant)
        elif constant is not None and constant == documented:
            yield "None"
        elif isinstance(constant, frozenset):  # its order is another one in each process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _names(code: CodeType) -> set[str]:
    """Names of globals and attributes, also of functions within."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _is_users(file: str | None) -> bool:
    return file is not None and not file.startswith((*INSTALLED, "<frozen"))
