"""A disk some of whose folders fail, and whole nodes with two data folders on it."""

import errno

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from tests.unit.node.broker.rig import Rig


class FailingFile(RealFile):
    """Its errors name no file, as those of a system call on a descriptor."""

    __slots__ = ("disk",)
    disk: "FailingDisk"

    def ask(self, way):
        try:
            self.disk.ask(self.path, way)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror) from None

    def append(self, data):
        self.ask("write")
        super().append(data)

    def append_all(self, pieces):
        self.append(b"".join(pieces))

    def write_at(self, data, position):
        self.ask("write")
        super().write_at(data, position)

    def read(self, length, position):
        self.ask("read")
        return super().read(length, position)

    def flush(self):
        self.ask("flush")
        super().flush()


class FailingDisk(RealDisk):
    """`fail` has all files under a folder refuse what is named: write, read, flush, open or
    rename."""

    __slots__ = ("failures",)

    def __init__(self):
        self.failures = {}

    def fail(self, folder, *ways, error=errno.EIO):
        self.failures[str(folder)] = ways or ("write", "read", "flush", "open", "rename"), error

    def mend(self):
        self.failures.clear()

    def ask(self, path, way):
        for folder, (ways, error) in self.failures.items():
            if way in ways and (path + "/").startswith(folder + "/"):
                raise OSError(error, "the disk is broken", path)

    def open(self, path, *, create=False):
        self.ask(path, "open")
        plain = super().open(path, create=create)
        file = FailingFile(path, plain._fd)
        plain._fd = -1
        file.disk = self
        return file

    def list(self, folder):
        self.ask(folder, "open")
        return super().list(folder)

    def read_file(self, path):
        self.ask(path, "read")
        return super().read_file(path)

    def write_file(self, path, pieces, *, flush=True):
        self.ask(path, "write")
        super().write_file(path, pieces, flush=flush)

    def rename(self, old, new):
        self.ask(old, "rename")
        super().rename(old, new)

    def flush_folder(self, path):
        self.ask(path, "flush")
        super().flush_folder(path)


class TwoFolders(Rig):
    """A node alone with the data folders `one`, which has the metadata, and `two`."""

    def __init__(self, tmp_path, disk=None, **settings):
        self.disk = disk or FailingDisk()
        self.one, self.two = tmp_path / "one", tmp_path / "two"
        for folder in (self.one, self.two):
            folder.mkdir(exist_ok=True)
        names = {"log_dirs": f"{self.one},{self.two}", **settings}
        super().__init__(tmp_path, disk=self.disk, **names)

    @property
    def folders(self):
        return self.node.partitions.folders

    def partitions_in(self, folder):
        """Names of partitions that lie there."""
        found = self.folders.online.get(str(folder))
        return sorted(f"{topic}-{index}" for topic, index in found.logs) if found else None

    def directory_in_metadata(self, topic, index=0):
        partition = self.node.controller.image.topics[topic].partitions[index]
        return partition.directories[0]

    def leader_of(self, topic, index=0):
        return self.node.controller.image.topics[topic].partitions[index].leader
