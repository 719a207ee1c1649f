"""A disk that is full for some files and for some time, as a story wants it."""

from typing import Any

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from tests.unit.node.broker import rig as rig_module


class Room:
    """Says which appends find no room; counts all of them and those that were refused."""

    def __init__(self):
        self.refuses = lambda path: False
        self.refuses_files = False  # new ones, and small ones that are written anew
        self.refuses_file = lambda path: self.refuses_files
        self.asked = self.refused = 0

    def ask(self, path):
        if not path.endswith((".log", ".txnindex")):
            return
        self.asked += 1
        if self.refuses(path):
            self.refused += 1
            raise OSError(28, "No space left on device")


class FillingFile(RealFile):
    __slots__ = ("room",)
    room: Any

    def append(self, data):
        self.room.ask(self.path)
        super().append(data)

    def append_all(self, pieces):
        self.append(b"".join(pieces))


class FillingDisk(RealDisk):
    __slots__ = ("room",)

    def __init__(self, room):
        self.room = room

    def write_file(self, path, pieces, *, flush=True):
        if self.room.refuses_file(path):
            raise OSError(28, "No space left on device")
        super().write_file(path, pieces, flush=flush)

    def open(self, path, *, create=False):
        plain = super().open(path, create=create)
        file = FillingFile(path, plain._fd)
        plain._fd = -1
        file.room = self.room
        return file


def make_room_for_rigs(monkeypatch):
    """What the disk of every rig of the test asks."""
    room = Room()
    monkeypatch.setattr(rig_module, "RealDisk", lambda: FillingDisk(room))
    return room
