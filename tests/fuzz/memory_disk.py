"""A disk in memory: thousands of requests a second, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from headrace.environment import Buffer


class MemoryFile:
    def __init__(self, path: str, data: bytearray) -> None:
        self.path = path
        self._data = data
        self.size = len(data)

    def fileno(self) -> int:
        raise OSError("a file in memory has no descriptor")

    def append(self, data: Buffer) -> None:
        self.write_at(data, self.size)

    def append_all(self, pieces: Sequence[Buffer]) -> None:
        self.append(b"".join(pieces))

    def read(self, length: int, position: int) -> bytes:
        return bytes(self._data[position : position + length])

    def write_at(self, data: Buffer, position: int) -> None:
        if position > len(self._data):
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def resize(self, size: int) -> None:
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))
        self.size = size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryDisk:
    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._folders: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        path = os.path.normpath(path)
        if path not in self._files:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self._files[path] = bytearray()
        return MemoryFile(path, self._files[path])

    def exists(self, path: str) -> bool:
        path = os.path.normpath(path)
        return path in self._files or path in self._folders

    def size(self, path: str) -> int:
        return len(self._found(path))

    def modified_ms(self, path: str) -> int:
        return 0

    def list(self, folder: str) -> list[str]:
        start = os.path.normpath(folder) + "/"
        names = (*self._files, *self._folders)
        return sorted(
            {name[len(start) :].split("/")[0] for name in names if name.startswith(start)}
        )

    def make_folder(self, path: str) -> None:
        path = os.path.normpath(path)
        while path and path != "/":
            self._folders.add(path)
            path = os.path.dirname(path)

    def rename(self, old: str, new: str) -> None:
        old, new = os.path.normpath(old), os.path.normpath(new)
        if old in self._files:
            self._files[new] = self._files.pop(old)
            return
        if old not in self._folders:
            raise FileNotFoundError(2, "no such file", old)
        for table in (self._files, self._folders):
            moved = [name for name in table if name == old or name.startswith(old + "/")]
            for name in moved:
                target = new + name[len(old) :]
                if isinstance(table, dict):
                    table[target] = table.pop(name)
                else:
                    table.remove(name)
                    table.add(target)

    def remove(self, path: str) -> None:
        self._files.pop(os.path.normpath(path), None)

    def remove_folder(self, path: str) -> None:
        path = os.path.normpath(path)
        self._folders = {f for f in self._folders if f != path and not f.startswith(path + "/")}
        for name in [name for name in self._files if name.startswith(path + "/")]:
            del self._files[name]

    def read_file(self, path: str) -> bytes:
        return bytes(self._found(path))

    def write_file(self, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        self._files[os.path.normpath(path)] = bytearray(b"".join(pieces))

    def flush_folder(self, path: str) -> None:
        pass

    def _found(self, path: str) -> bytearray:
        found = self._files.get(os.path.normpath(path))
        if found is None:
            raise FileNotFoundError(2, "no such file", path)
        return found
