"""Writes decoders: one straight-line function per layout.

Adjacent fixed fields are read by one Struct (patterns measured for this project: a joined unpack is
2-3 times as fast as a call per field). A run ends with the length of the next string or array, or
with the first byte of it where lengths are varints: nearly all are below 128, and the rest continue
in `more_uvarint`. The text of a string is read together with the run behind it. Structs within
arrays are written out in place, since a call costs as much as two fields.

Bounds: Structs refuse to read past the end; byte runs and counts are compared with what remains.
"""

from __future__ import annotations

from headrace.wire.protocol.codegen.schema import (
    FIXED_CODES,
    FIXED_SIZES,
    Definition,
    Field,
    Struct,
)
from headrace.wire.protocol.codegen.source import Bindings, Lines, size_of
from headrace.wire.protocol.codegen.types import annotation, class_default, element_annotation


def write_decoder(
    definition: Definition, version: int, bindings: Bindings, *, sliced: bool = False
) -> list[str]:
    """The body of the function that decodes this version."""
    return _Decoder(definition, version, bindings, sliced).function()


class _Decoder:
    """One function. Pending are the fields of the current run, read by the next `flush`."""

    def __init__(
        self, definition: Definition, version: int, bindings: Bindings, sliced: bool
    ) -> None:
        self.definition = definition
        self.version = version
        self.flexible = version in definition.flexible
        self.bind = bindings
        self.lines = Lines(sliced=sliced)
        self.codes: list[str] = []
        self.names: list[str] = []
        self.text: _Text | None = None
        self.structs = 0
        self.knows_size = False

    def function(self) -> list[str]:
        lines = self.lines
        with lines.block("try:"):
            value = self.struct(self.definition.root)
            self.flush()
            lines.add(f"return {value}, pos")
        with lines.block(f"except {self.bind.use('BROKEN')} as error:"):
            lines.add(f'raise MalformedMessage(f"{self.definition.name}: {{error}}") from error')
        if self.knows_size:
            lines.text.insert(0, "    size = len(view)")
        return lines.text

    def flush(self) -> None:
        """Write the code that reads the pending fields."""
        codes, names, text = "".join(self.codes), self.names, self.text
        self.codes, self.names, self.text = [], [], None
        if text is not None:
            reader = self.bind.text_reader(codes, text.compact, text.nullable)
            targets = ", ".join([text.raw, *names]) if names else f"({text.raw},)"
            self.lines.add(f"{targets} = {reader}[{text.length}](view, pos)")
            self.lines.add(f"pos += {text.bytes_and(size_of(codes))}")
        elif codes == "B":
            self.lines.add(f"{names[0]} = view[pos]")
            self.lines.add("pos += 1")
        elif codes:
            targets = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
            self.lines.add(f"{targets} = {self.bind.unpack(codes)}(view, pos)")
            self.lines.add(f"pos += {size_of(codes)}")

    def pending(self, code: str, name: str) -> None:
        self.codes.append(code)
        self.names.append(name)

    def size(self) -> str:
        self.knows_size = True
        return "size"

    def struct(self, struct: Struct) -> str:
        """Reads a struct; returns the expression that builds it once the run is flushed."""
        self.structs += 1
        suffix = "" if self.structs == 1 else f"_{self.structs}"
        values: dict[str, str] = {}
        for field in struct.regular(self.version, self.flexible):
            values[field.attribute] = self.field(field, field.attribute + suffix)
        if self.flexible:
            values.update(self.tags(struct, suffix))
        return construct(struct, values)

    def field(self, field: Field, name: str) -> str:
        """Reads a field into `name`; returns the expression of its value."""
        if field.is_array:
            self.array(field, name)
            return name
        if field.type in FIXED_CODES:
            self.pending(FIXED_CODES[field.type], name)
            return name
        if field.type == "string":
            return self.string(field, name)
        if field.type == "struct":
            assert field.struct is not None
            if self.version in field.nullable:
                self.nullable_struct(field, name)
                return name
            return self.struct(field.struct)
        self.byte_run(field, name)
        return name

    def length(self, field: Field, name: str) -> str:
        """Reads a length, or a count, with the run before it."""
        length = f"n_{name}"
        if field.is_compact(self.flexible):
            self.pending("B", length)
            self.flush()
            with self.lines.block(f"if {length} > 127:"):
                self.long_varint(field, length)
        else:
            self.pending("h" if field.type == "string" and not field.is_array else "i", length)
            self.flush()
        return length

    def long_varint(self, field: Field, length: str) -> None:
        """The rest of a length above 127, which is rare except for records."""
        call = f"{length}, pos = {self.bind.use('more_uvarint')}(view, pos, {length})"
        if field.type != "records":
            self.lines.add(call)
            return
        self.lines.add("second = view[pos]")
        with self.lines.block("if second < 128:"):
            self.lines.add(f"{length} += (second << 7) - 128")
            self.lines.add("pos += 1")
        with self.lines.block("else:"):
            self.lines.add(call)

    def string(self, field: Field, name: str) -> str:
        compact = field.is_compact(self.flexible)
        nullable = self.version in field.nullable
        length = self.length(field, name)
        self.text = _Text(name, length, compact, nullable)
        if not nullable:
            return f"{name}.decode()"
        return f"{name}.decode() if {length} {'' if compact else '>= 0 '}else None".replace(
            "  ", " "
        )

    def byte_run(self, field: Field, name: str) -> None:
        nullable = self.version in field.nullable
        compact = field.is_compact(self.flexible)
        length = self.length(field, name)
        lines = self.lines
        if nullable:
            lines.add(f"{name}: {annotation(field)} = None")
            with lines.block(f"if {length} {'> 0' if compact else '>= 0'}:"):
                self.byte_run_value(field, name, length, compact)
        else:
            with lines.block(f"if {length} < {int(compact)}:"):
                lines.add(f"raise {self.bind.use('misfit')}('a length', {length})")
            self.byte_run_value(field, name, length, compact)

    def byte_run_value(self, field: Field, name: str, length: str, compact: bool) -> None:
        lines = self.lines
        lines.add(f"end = pos + {length}{' - 1' * compact}")
        with lines.block(f"if end > {self.size()}:"):
            lines.add(f"raise {self.bind.use('misfit')}('a length', {length})")
        lines.add(f"{name} = view[pos:end]{'' if field.type == 'records' else '.tobytes()'}")
        lines.add("pos = end")

    def nullable_struct(self, field: Field, name: str) -> None:
        assert field.struct is not None
        self.pending("b", f"n_{name}")
        self.flush()
        self.lines.add(f"{name}: {annotation(field)} = None")
        with self.lines.block(f"if n_{name} >= 0:"):
            value = self.struct(field.struct)
            self.flush()
            self.lines.add(f"{name} = {value}")

    def array(self, field: Field, name: str) -> None:
        nullable = self.version in field.nullable
        compact = field.is_compact(self.flexible)
        length = self.length(field, name)
        lines = self.lines
        count = f"{length} - 1" if compact else length
        smallest = max(1, field.element_smallest(self.version, self.flexible))
        needed = f"({count}) * {smallest}" if compact else f"{length} * {smallest}"
        if smallest == 1:
            needed = count
        if nullable:
            lines.add(f"{name}: {annotation(field)} = None")
            with lines.block(f"if {length} {'> 0' if compact else '>= 0'}:"):
                with lines.block(f"if {needed} > {self.size()} - pos:"):
                    lines.add(f"raise {self.bind.use('misfit')}('a count', {count})")
                self.elements(field, name, count, declared=True)
        else:
            with lines.block(f"if {length} < {int(compact)} or {needed} > {self.size()} - pos:"):
                lines.add(f"raise {self.bind.use('misfit')}('a count', {count})")
            self.elements(field, name, count, declared=False)

    def elements(self, field: Field, name: str, count: str, *, declared: bool) -> None:
        """The elements of an array whose count has been checked."""
        lines = self.lines
        if field.type in FIXED_CODES:
            self.fixed_elements(field, name, count)
            return
        if field.struct is not None and (codes := self.fixed_layout(field.struct)):
            self.fixed_structs(field, name, count, codes)
            return
        lines.add(f"{name} = []" if declared else f"{name}: list[{element_annotation(field)}] = []")
        with lines.loop(f"for _ in range({count}):"):
            if field.struct:
                value = self.struct(field.struct)
            else:
                value = self.field(field.element(), f"one_{name}")
            self.flush()
            lines.add(f"{name}.append({value})")

    def fixed_elements(self, field: Field, name: str, count: str) -> None:
        code, size = FIXED_CODES[field.type], FIXED_SIZES[field.type]
        lines = self.lines
        if code == "16s":
            lines.add(f"end = pos + ({count}) * 16")
            lines.add(f"{name} = [one for (one,) in {self.bind.iterate(code)}(view[pos:end])]")
            lines.add("pos = end")
            return
        read = self.bind.use("read_int_array")
        lines.add(f'{name} = {read}("{code}", view, pos, {count})')
        lines.add(f"pos += ({count}) * {size}" if size > 1 else f"pos += {count}")

    def fixed_layout(self, struct: Struct) -> str:
        """The codes of a struct that has nothing but fixed fields, or an empty string."""
        fields = struct.regular(self.version, self.flexible)
        if self.flexible or not all(f.is_fixed() for f in fields):
            return ""
        return "".join(FIXED_CODES[f.type] for f in fields)

    def fixed_structs(self, field: Field, name: str, count: str, codes: str) -> None:
        assert field.struct is not None
        names = [f.attribute for f in field.struct.regular(self.version, self.flexible)]
        value = construct(field.struct, {n: f"{n}_" for n in names})
        targets = ", ".join(f"{n}_" for n in names) + "," * (len(names) == 1)
        lines = self.lines
        lines.add(f"end = pos + ({count}) * {size_of(codes)}")
        with lines.block(f"{name} = ["):
            lines.add(value)
            lines.add(f"for {targets} in {self.bind.iterate(codes)}(view[pos:end])")
        lines.add("]")
        lines.add("pos = end")

    def tags(self, struct: Struct, suffix: str) -> dict[str, str]:
        """The tagged section: known fields by their tag, others are passed over."""
        known = struct.tagged(self.version, self.flexible)
        tags = f"tags{suffix}"
        self.pending("B", tags)
        lines = self.lines
        if not known:
            self.flush()
            with lines.block(f"if {tags}:"):
                lines.add(f"pos = {self.bind.use('skip_tags')}(view, pos, {tags})")
            return {}
        self.flush()
        values = {f.attribute: f.attribute + suffix for f in known}
        for field in known:
            lines.add(f"{values[field.attribute]}: {annotation(field)} = {class_default(field)}")
        with lines.block(f"if {tags}:"):
            lines.add(f"{tags}, pos = {self.bind.use('tag_count')}(view, pos, {tags})")
            with lines.loop(f"for _ in range({tags}):"):
                lines.add(
                    f"tag{suffix}, pos, tag_end{suffix} = {self.bind.use('read_tag')}(view, pos)"
                )
                for index, field in enumerate(known):
                    self.tag(field, values[field.attribute], suffix, first=index == 0)
                with lines.block("else:"):
                    lines.add(f"pos = tag_end{suffix}")
                with lines.block(f"if pos != tag_end{suffix}:"):
                    wrong = f"raise {self.bind.use('misfit')}('the length of tag', tag{suffix})"
                    lines.add(wrong)
        return values

    def tag(self, field: Field, name: str, suffix: str, *, first: bool) -> None:
        lines = self.lines
        with lines.block(f"{'if' if first else 'elif'} tag{suffix} == {field.tag}:"):
            if field.is_single_struct() and self.version in field.nullable:
                # In a tag the sign of null is a varint 0, elsewhere it is the byte -1.
                assert field.struct is not None
                lines.add(f"n_{name} = view[pos]")
                lines.add("pos += 1")
                lines.add(f"{name} = None")
                with lines.block(f"if n_{name}:"):
                    value = self.struct(field.struct)
                    self.flush()
                    lines.add(f"{name} = {value}")
                return
            value = self.field(field, f"value_{name}")
            self.flush()
            lines.add(f"{name} = {value}")


class _Text:
    """A string whose length has been read and whose text is still to be read."""

    __slots__ = ("raw", "length", "compact", "nullable")

    def __init__(self, raw: str, length: str, compact: bool, nullable: bool) -> None:
        self.raw = raw
        self.length = length
        self.compact = compact
        self.nullable = nullable

    def bytes_and(self, more: int) -> str:
        """The size of the text and of the `more` bytes that were read with it."""
        if not self.nullable:
            more -= self.compact
            return (
                f"{self.length} + {more}"
                if more > 0
                else f"{self.length} - 1"
                if more
                else self.length
            )
        if self.compact:
            return f"{self.length} + {more - 1} if {self.length} else {more}".replace("+ -1", "- 1")
        return f"{self.length} + {more} if {self.length} > 0 else {more}"


def construct(struct: Struct, values: dict[str, str]) -> str:
    """The call that builds a struct; fields that are not in this version get their default."""
    arguments = [values.get(f.attribute, class_default(f)) for f in struct.fields]
    present = [f.attribute in values for f in struct.fields]
    while present and not present[-1]:
        present.pop()
        arguments.pop()
    return f"{struct.name}({', '.join(arguments)})"
