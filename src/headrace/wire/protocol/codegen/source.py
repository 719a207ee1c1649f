"""Source text in the making: indented lines, and the names a module gives to its Structs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import calcsize


class Lines:
    """Lines of one function, indented as they come."""

    __slots__ = ("text", "depth", "sliced")

    def __init__(self, *, sliced: bool = False) -> None:
        self.text: list[str] = []
        self.depth = 1
        self.sliced = sliced

    def add(self, line: str) -> None:
        self.text.append("    " * self.depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Everything added inside is one level deeper than `opening`."""
        self.add(opening)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def loop(self, opening: str) -> Iterator[None]:
        """A block that repeats; other work may run before each round of a sliced function."""
        with self.block(opening):
            if self.sliced:
                self.add("yield")
            yield


class Bindings:
    """Module-level names for Structs, each made once and only if a function uses it."""

    __slots__ = ("lines", "imports")

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.imports: set[str] = set()

    def use(self, name: str) -> str:
        """A name of `primitives` that the module has to import."""
        self.imports.add(name)
        return name

    def unpack(self, codes: str) -> str:
        return self._bind(f"_u_{_plain(codes)}", f'Struct(">{codes}").unpack_from')

    def iterate(self, codes: str) -> str:
        return self._bind(f"_i_{_plain(codes)}", f'Struct(">{codes}").iter_unpack')

    def pack(self, codes: str) -> str:
        return self._bind(f"_p_{_plain(codes)}", f'Struct(">{codes}").pack')

    def text_reader(self, behind: str, compact: bool, nullable: bool) -> str:
        name = f"_r{'c' * compact}{'n' * nullable}_{_plain(behind)}"
        return self._bind(name, f'{self.use("TextReader")}("{behind}", {compact}, {nullable})')

    def run_writer(self, before: str, item: str, behind: str) -> str:
        name = f"_w_{_plain(before)}_{item}_{_plain(behind)}"
        return self._bind(name, f'{self.use("RunWriter")}("{before}", "{item}", "{behind}")')

    def _bind(self, name: str, value: str) -> str:
        assert self.lines.setdefault(name, value) == value
        return name


def size_of(codes: str) -> int:
    """Bytes of a big-endian `struct` format."""
    return calcsize(">" + codes)


def _plain(codes: str) -> str:
    return codes.replace("?", "o")
