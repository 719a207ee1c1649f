"""Types and defaults of generated classes, as source text."""

from __future__ import annotations

from headrace.wire.protocol.codegen.schema import Field

_ANNOTATIONS = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}
_EMPTY = {
    "bool": "False",
    "float64": "0.0",
    "uuid": "ZERO_ID",
    "string": '""',
    "bytes": 'b""',
    "records": "None",
}


def element_annotation(field: Field) -> str:
    """The type of the field, or of its elements if it is an array."""
    if field.struct:
        return field.struct.name
    return _ANNOTATIONS.get(field.type, "int")


def annotation(field: Field) -> str:
    """The type of the field; with None where any version allows null."""
    text = element_annotation(field)
    if field.is_array:
        text = f"list[{text}]"
    if field.type == "records" or not (field.ever_nullable() or field.none_is_absent()):
        return text
    return f"{text} | None"


def class_default(field: Field) -> str:
    """The expression of a fresh default value."""
    if field.default == "null" or field.none_is_absent():
        return "None"
    if field.is_array:
        return "[]"
    if field.struct:
        return f"{field.struct.name}()"
    if field.type == "bool":
        return "True" if field.default == "true" else "False"
    if field.type == "string" and field.default:
        return repr(field.default)
    if field.type in _EMPTY:
        return _EMPTY[field.type]
    return str(int(field.default or "0", 0))
