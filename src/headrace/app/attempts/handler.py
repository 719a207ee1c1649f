"""A handler's signature, read once: the arguments for a record, and how to call the handler.

The value is the parameter with a type hint that is neither `Message` nor named `db`; `Message` is
found by its hint, `db` by its name (it comes from `once=`). With `batch=` the hints are lists.
Plain functions, coroutines and generators of both kinds are distinguished here, so that the worker
checks once and not for every record. A wrong signature is refused where the handler is declared.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.app.decoding import Codec, Decode, decoder, described
from headrace.app.message import Message

Kind = Literal["function", "coroutine", "generator", "async generator"]
Handler = Callable[..., Any]
Part = Literal["value", "message", "db"]


@dataclass(slots=True)
class Plan:
    """How to call a handler."""

    handler: Handler
    name: str  # module and function, for logs
    kind: Kind
    parts: tuple[tuple[str, Part], ...]  # parameter, what it is given
    value_hint: Any  # of one record; None if the handler asks for no value
    batch: bool

    @property
    def asynchronous(self) -> bool:
        return self.kind in ("coroutine", "async generator")

    @property
    def yields(self) -> bool:
        return self.kind in ("generator", "async generator")

    @property
    def wants_value(self) -> bool:
        return any(part == "value" for _, part in self.parts)

    @property
    def wants_db(self) -> bool:
        return any(part == "db" for _, part in self.parts)

    @property
    def only_value(self) -> bool:
        """Whether the value is the only argument: the common case, called without keywords."""
        return len(self.parts) == 1 and self.parts[0][1] == "value"

    def decode_for(self, topic: str, codec: Codec | None) -> Decode | None:
        """The decoder of a topic; None if the handler takes the message alone."""
        if not self.wants_value:
            return None
        return decoder(self.value_hint, topic=topic, codec=codec)

    def arguments(self, value: Any, message: Any, db: Any) -> dict[str, Any]:
        given: dict[Part, Any] = {"value": value, "message": message, "db": db}
        return {name: given[part] for name, part in self.parts}


def plan(
    handler: Handler, *, batch: bool = False, local_names: dict[str, Any] | None = None
) -> Plan:
    """Raises TypeError with a message for the author of the handler."""
    if not callable(handler):
        raise TypeError(f"A handler is a function, not {handler!r}.")
    name = handler_name(handler)
    hints = _hints(handler, name, local_names)
    parts: list[tuple[str, Part]] = []
    value_hint: Any = None
    for parameter in inspect.signature(handler).parameters.values():
        hint = hints.get(parameter.name)
        part = _part(parameter, hint, batch, name)
        if part is None:
            continue
        if any(part == other for _, other in parts):
            raise TypeError(
                f"{name} has two parameters for the {part}, the second is {parameter.name}: "
                "a handler takes one value, one `message: Message` and one `db`."
            )
        parts.append((parameter.name, part))
        if part == "value":
            value_hint = _of_one(hint, parameter.name, name) if batch else hint
    if not any(part in ("value", "message") for _, part in parts):
        raise TypeError(f"{name} takes neither a value nor a message: it would see nothing.")
    return Plan(handler, name, _kind(handler), tuple(parts), value_hint, batch)


def _hints(handler: Handler, name: str, local_names: dict[str, Any] | None) -> dict[str, Any]:
    target = handler if inspect.isroutine(handler) else type(handler).__call__
    try:
        return typing.get_type_hints(target, localns=local_names)
    except NameError as unknown:
        raise TypeError(f"A type hint of {name} cannot be found: {unknown}.") from unknown


def _part(parameter: inspect.Parameter, hint: Any, batch: bool, name: str) -> Part | None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{name} takes {parameter.name} by position only; handlers take names.")
    if hint is Message or (batch and _list_of(hint) is Message):
        if (hint is Message) == batch:
            raise TypeError(f"{name} handles batches: it takes list[Message].")
        return "message"
    if parameter.name == "db":
        return "db"
    if hint is None:
        if parameter.default is not parameter.empty:
            return None
        raise TypeError(
            f"Say by a type hint what {parameter.name} of {name} is: a pydantic model, a "
            "dataclass, dict, str or bytes."
        )
    return "value"


def _of_one(hint: Any, parameter: str, name: str) -> Any:
    one = _list_of(hint)
    if one is None:
        raise TypeError(
            f"{name} handles batches: {parameter} is a list[...], not {described(hint)}."
        )
    return one


def _list_of(hint: Any) -> Any:
    inside = typing.get_args(hint)
    return inside[0] if typing.get_origin(hint) is list and inside else None


def _kind(handler: Handler) -> Kind:
    target = handler if inspect.isroutine(handler) else type(handler).__call__
    if inspect.isasyncgenfunction(target):
        return "async generator"
    if inspect.iscoroutinefunction(target):
        return "coroutine"
    if inspect.isgeneratorfunction(target):
        return "generator"
    return "function"


def handler_name(handler: Handler) -> str:
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"
