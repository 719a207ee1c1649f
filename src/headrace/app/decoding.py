"""Decodes the bytes of a value by a handler's type hint, and encodes published values.

`bytes` and `str` go as they are, `dict` and `Any` are JSON, everything else (pydantic models,
dataclasses, TypedDict, lists of those) is JSON checked by pydantic, which the extra `headrace[app]`
brings. For Avro, Protobuf and other formats pass a `Codec`. A value that cannot be decoded raises
`Undecodable`: such a record goes to the dead letters at once, because no further attempt would
help.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from headrace.installation import how_to_add

MOST_FINDINGS = 5

Decode = Callable[[bytes | None], Any]


class Undecodable(Exception):
    """A value that does not fit the handler's type hint."""


@runtime_checkable
class Codec(Protocol):
    """Decodes and encodes values in another form than JSON; one codec may serve many topics."""

    def decode(self, raw: bytes, *, topic: str, hint: Any) -> Any:
        """The value of a record as the handler's type."""
        ...

    def encode(self, value: Any, *, topic: str) -> bytes:
        """The bytes of a value that is published."""
        ...


def decoder(hint: Any, *, topic: str = "", codec: Codec | None = None) -> Decode:
    """The decoder for this type hint; raises TypeError if values cannot be decoded by it."""
    plain, optional = without_none(hint)
    decode = _by_codec(codec, topic, plain) if codec is not None else _for(plain)

    def decoded(raw: bytes | None) -> Any:
        if raw is None:
            if optional:
                return None
            raise Undecodable(
                f"The value is null, and the handler takes {described(hint)}: "
                "write `| None` to be given tombstones."
            )
        try:
            return decode(raw)
        except Undecodable:
            raise
        except Exception as failure:  # any exception of a decoder means that it could not decode
            raise Undecodable(f"This is no {described(hint)}: {_why(failure)}") from failure

    if plain is bytes and codec is None and optional:
        return lambda raw: raw
    return decoded


def _why(failure: Exception) -> str:
    """pydantic's errors in one line: the field, and what is wrong with it."""
    errors = getattr(failure, "errors", None)
    if type(failure).__module__.partition(".")[0] != "pydantic_core" or errors is None:
        return str(failure)
    findings = errors(include_url=False, include_context=False)
    said = [
        ": ".join([".".join(map(str, one["loc"])), one["msg"]] if one["loc"] else [one["msg"]])
        for one in findings[:MOST_FINDINGS]
    ]
    left = len(findings) - len(said)
    return "; ".join(said) + (f"; and {left} more" if left else "")


def _by_codec(codec: Codec, topic: str, hint: Any) -> Callable[[bytes], Any]:
    return lambda raw: codec.decode(raw, topic=topic, hint=hint)


def _for(hint: Any) -> Callable[[bytes], Any]:
    if hint is bytes:
        return lambda raw: raw
    if hint is str:
        return bytes.decode
    if hint is Any:
        return json.loads
    if hint is dict:
        return _object
    validate: Callable[[bytes], Any] = _adapter(hint).validate_json
    return validate


def _object(raw: bytes) -> Any:
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise Undecodable(f"JSON of type {type(found).__name__} is not an object.")
    return found


def _adapter(hint: Any) -> Any:
    try:
        from pydantic import PydanticSchemaGenerationError, TypeAdapter
    except ImportError as missing:
        raise TypeError(
            "Handlers that take bytes, str or dict need no model. "
            + how_to_add(f"Values of type {described(hint)} need", "pydantic", "app")
        ) from missing
    try:
        return TypeAdapter(hint)
    except PydanticSchemaGenerationError as unknown:
        raise TypeError(
            f"No codec reads a value of type {described(hint)} from JSON: use a pydantic "
            "model, a dataclass, dict, str or bytes, or pass codec=."
        ) from unknown


def without_none(hint: Any) -> tuple[Any, bool]:
    """The hint without its `| None`, and whether it had one. `Any` takes None."""
    if hint is Any:
        return Any, True
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        if len(kinds) < len(typing.get_args(hint)):
            return (kinds[0] if len(kinds) == 1 else typing.Union[tuple(kinds)]), True  # noqa: UP007
    return hint, False


def described(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def encoded(value: Any, *, topic: str, codec: Codec | None = None) -> bytes | None:
    """The bytes of a value to publish; None stays None, a tombstone."""
    if value is None:
        return None
    if codec is not None:
        return codec.encode(value, topic=topic)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json()).encode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        raw: bytes = _adapter(type(value)).dump_json(value)
        return raw
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except TypeError as failure:
        raise TypeError(
            f"A value of type {type(value).__name__} cannot be published to {topic}: {failure}. "
            "Use a pydantic model, a dataclass, what JSON knows, str or bytes, or pass codec=."
        ) from failure
