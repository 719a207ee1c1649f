"""Writes encoders: one straight-line function per layout.

A run of fixed fields is one pack, which may include one string or one list of numbers. The common
case is packed as a constant in the same run: lengths below 128 take one byte, tagged fields are
absent, and the fields of `COMMONLY_EMPTY` are empty. In other cases the `else` branch writes the
parts one after the other. Records are a separate piece, so they are never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.wire.protocol.codegen.schema import FIXED_CODES, NUMBERS, Definition, Field, Struct
from headrace.wire.protocol.codegen.source import Bindings, Lines
from headrace.wire.protocol.codegen.types import class_default

# Null or empty in nearly every message, so that the run includes them.
COMMONLY_EMPTY = frozenset(
    {"error_message", "record_errors", "aborted_transactions", "offline_replicas"}
)


@dataclass(slots=True)
class _Part:
    """A value to pack. `code` and `argument` are right if `condition` holds; if not, `otherwise`
    writes the value. A part with `key` is repeated as often as that says ("s" or "i")."""

    code: str
    argument: str = ""
    condition: str = ""
    otherwise: Callable[[], None] | None = None
    key: str = ""


def write_encoder(
    definition: Definition, version: int, bindings: Bindings, *, sliced: bool = False
) -> list[str]:
    """The body of the function that encodes this version."""
    encoder = _Encoder(definition, version, bindings, sliced)
    encoder.struct(definition.root, "m")
    encoder.flush()
    return encoder.lines.text or ["    return"]


class _Encoder:
    """One function. `parts` is the current run, written by the next `flush`."""

    def __init__(
        self, definition: Definition, version: int, bindings: Bindings, sliced: bool
    ) -> None:
        self.version = version
        self.flexible = version in definition.flexible
        self.bind = bindings
        self.lines = Lines(sliced=sliced)
        self.parts: list[_Part] = []
        self.put = "put"
        self.names = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def flush(self) -> None:
        """Write the current run."""
        parts, self.parts = self.parts, []
        if not parts:
            return
        conditions = list(dict.fromkeys(p.condition for p in parts if p.condition))
        if len(parts) == 1 and parts[0].otherwise:
            parts[0].otherwise()
        elif not conditions:
            self.pack(parts)
        else:
            with self.lines.block(f"if {' and '.join(conditions)}:"):
                self.pack(parts)
            with self.lines.block("else:"):
                self.one_by_one(parts)

    def one_by_one(self, parts: list[_Part]) -> None:
        plain: list[_Part] = []
        for part in parts:
            if part.otherwise is None:
                plain.append(part)
                continue
            self.pack(plain)
            plain = []
            part.otherwise()
        self.pack(plain)

    def pack(self, parts: list[_Part]) -> None:
        """One pack of parts of which at most one is repeated."""
        if not parts:
            return
        arguments = ", ".join(p.argument for p in parts if p.argument)
        repeated = [i for i, p in enumerate(parts) if p.key]
        if not repeated:
            if not arguments:
                zeros = len(parts)
                self.lines.add(
                    f'{self.put}(b"{chr(92)}0")' if zeros == 1 else f"{self.put}(bytes({zeros}))"
                )
                return
            packer = self.bind.pack("".join(p.code for p in parts))
            self.lines.add(f"{self.put}({packer}({arguments}))")
            return
        at = repeated[0]
        if len(parts) == 1 and parts[0].code == "s":
            self.lines.add(f"{self.put}({arguments})")
            return
        before = "".join(p.code for p in parts[:at])
        behind = "".join(p.code for p in parts[at + 1 :])
        writer = self.bind.run_writer(before, parts[at].code, behind)
        self.lines.add(f"{self.put}({writer}[{parts[at].key}]({arguments}))")

    def add(self, part: _Part) -> None:
        if part.key and any(p.key for p in self.parts):
            self.flush()
        self.parts.append(part)

    def struct(self, struct: Struct, owner: str) -> None:
        for field in struct.regular(self.version, self.flexible):
            self.field(field, f"{owner}.{field.attribute}")
        if self.flexible:
            self.tags(struct, owner)

    def field(self, field: Field, value: str) -> None:
        nullable = self.version in field.nullable
        if field.attribute in COMMONLY_EMPTY and (field.is_array or nullable):
            self.commonly_empty(field, value)
        elif field.is_fixed():
            self.add(_Part(FIXED_CODES[field.type], value))
        else:
            self.variable(field, value)

    def commonly_empty(self, field: Field, value: str) -> None:
        compact = field.is_compact(self.flexible)
        if self.version in field.nullable:
            condition = f"{value} is None"
            part = _Part("x") if compact else _Part("i" if field.is_array else "h", "-1")
        else:
            condition = f"not {value}"
            part = _Part("B", "1") if compact else _Part("4x")

        def in_full() -> None:
            outer, self.parts = self.parts, []
            self.variable(field, value)
            self.flush()
            self.parts = outer

        part.condition = condition
        part.otherwise = in_full
        self.add(part)

    def variable(self, field: Field, value: str) -> None:
        """A field with a length, or a struct."""
        nullable = self.version in field.nullable
        if field.is_single_struct():
            assert field.struct is not None
            if nullable:
                self.nullable_struct(field.struct, value)
            else:
                self.struct(field.struct, value)
        elif field.is_array:
            self.array(field, value, nullable)
        elif field.type == "string":
            self.string(field, value, nullable)
        else:
            self.byte_run(field, value, nullable)

    def length(self, field: Field, length: str) -> None:
        """Add a length or count; in the compact form `length` includes Kafka's added 1."""
        if not field.is_compact(self.flexible):
            self.add(_Part("h" if field.type == "string" and not field.is_array else "i", length))
            return

        def in_full() -> None:
            self.lines.add(f"{self.put}({self.bind.use('uvarint')}({length}))")

        self.add(_Part("B", length, f"{length} < 128", in_full))

    def string(self, field: Field, value: str, nullable: bool) -> None:
        compact = field.is_compact(self.flexible)
        text, length = self.name("b"), self.name("n")
        lines = self.lines
        if nullable:
            with lines.block(f"if {value} is None:"):
                lines.add(f'{text} = b""')
                lines.add(f"{length} = {0 if compact else -1}")
            with lines.block("else:"):
                lines.add(f"{text} = {value}.encode()")
                lines.add(f"{length} = len({text}){' + 1' * compact}")
            key = f"len({text})"
        else:
            lines.add(f"{text} = {value}.encode()")
            lines.add(f"{length} = len({text}){' + 1' * compact}")
            key = f"{length} - 1" if compact else length
        self.length(field, length)
        self.add(_Part("s", text, key=key))

    def byte_run(self, field: Field, value: str, nullable: bool) -> None:
        compact = field.is_compact(self.flexible)
        run, length = self.name("r"), self.name("n")
        self.lines.add(f"{run} = {value}")
        if nullable:
            null, some = ("0", f"len({run}) + 1") if compact else ("-1", f"len({run})")
            self.lines.add(f"{length} = {null} if {run} is None else {some}")
        else:
            self.lines.add(f"{length} = len({run}){' + 1' * compact}")
        if compact and field.type == "records":  # seldom below 128 bytes
            self.flush()
            self.lines.add(f"{self.put}({self.bind.use('uvarint')}({length}))")
        else:
            self.length(field, length)
            self.flush()
        with self.lines.block(
            f"if {run}:" if field.type != "records" else f"if {length} > {int(compact)}:"
        ):
            self.lines.add(f"{self.put}({run})")

    def nullable_struct(self, struct: Struct, value: str) -> None:
        self.add(_Part("b", f"-1 if {value} is None else 1"))
        self.flush()
        with self.lines.block(f"if {value} is not None:"):
            self.struct(struct, value)
            self.flush()

    def array(self, field: Field, value: str, nullable: bool) -> None:
        compact = field.is_compact(self.flexible)
        items, length = self.name("a"), self.name("n")
        lines = self.lines
        lines.add(f"{items} = {value}")
        if nullable:
            with lines.block(f"if {items} is None:"):
                lines.add(f"{items} = ()")
                lines.add(f"{length} = {0 if compact else -1}")
            with lines.block("else:"):
                lines.add(f"{length} = len({items}){' + 1' * compact}")
        else:
            lines.add(f"{length} = len({items}){' + 1' * compact}")
        self.length(field, length)
        if field.type in NUMBERS:
            key = f"len({items})" if nullable else f"{length} - 1" if compact else length
            self.add(_Part(FIXED_CODES[field.type], f"*{items}", key=key))
            return
        self.flush()
        if field.type == "uuid":
            lines.add(f'{self.put}(b"".join({items}))')
            return
        one = self.name("e")
        with lines.loop(f"for {one} in {items}:"):
            if field.struct:
                self.struct(field.struct, one)
            elif field.type == "string":
                self.string(field.element(), one, nullable=False)
            else:
                self.byte_run(field.element(), one, nullable=False)
            self.flush()

    def tags(self, struct: Struct, owner: str) -> None:
        """The tagged section, by far most often empty."""
        known = struct.tagged(self.version, self.flexible)
        if not known:
            self.add(_Part("x"))
            return

        def in_full() -> None:
            outer, self.parts = self.parts, []
            put = self.put
            tags = self.name("tags")
            self.lines.add(f"{tags}: list[bytes] = []")
            for field in known:
                with self.lines.block(f"if {self.is_set(field, f'{owner}.{field.attribute}')}:"):
                    self.tag(field, f"{owner}.{field.attribute}", tags)
            self.put = put
            self.lines.add(f"{put}({self.bind.use('uvarint')}(len({tags})))")
            self.lines.add(f'{put}(b"".join({tags}))')
            self.parts = outer

        condition = " and ".join(self.is_unset(f, f"{owner}.{f.attribute}") for f in known)
        self.add(_Part("x", "", condition, in_full))

    def tag(self, field: Field, value: str, tags: str) -> None:
        pieces = self.name("v")
        self.lines.add(f"{pieces}: list[Any] = []")
        self.put = f"{pieces}.append"
        if field.is_single_struct() and self.version in field.nullable:
            # In a tag the sign of null is a varint 0, elsewhere it is the byte -1.
            assert field.struct is not None
            self.add(_Part("B", f"{value} is not None"))
            self.flush()
            with self.lines.block(f"if {value} is not None:"):
                self.struct(field.struct, value)
                self.flush()
        else:
            if field.is_fixed():
                self.add(_Part(FIXED_CODES[field.type], value))
            else:
                self.variable(field, value)
            self.flush()
        self.lines.add(f"{tags}.append({self.bind.use('tagged')}({field.tag}, {pieces}))")

    def is_unset(self, field: Field, value: str) -> str:
        """Returns a quick test that a tagged field need not be sent; may be false for a default
        struct."""
        default = class_default(field)
        if default == "None":
            return f"{value} is None"
        if default == "[]" and not field.ever_nullable():
            return f"not {value}"
        return f"{value} == {self.constant(default)}"

    def is_set(self, field: Field, value: str) -> str:
        """Exact test that a tagged field is sent."""
        if field.none_is_absent():
            assert field.struct is not None
            return f"{value} is not None and {value} != {field.struct.name}()"
        default = class_default(field)
        if default == "None":
            return f"{value} is not None"
        if default == "[]" and not field.ever_nullable():
            return value
        return f"{value} != {self.constant(default)}"

    def constant(self, default: str) -> str:
        return self.bind.use(default) if default == "ZERO_ID" else default
