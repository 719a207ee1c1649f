"""Data folders whose disks refuse appends (full, over a quota, broken), until they take them again.

A log whose append was refused names its folder here. While a data folder is on the list, replicas
in it give up their leadership where another replica is in sync (`replication/replica.py`), and do
not join an ISR (`replication/partition_follower.py`). Every second a file of `PROBE_BYTES` is
written to it: when the disk takes that, and has refused nothing for a while, the folder leaves the
list. Both are logged once. A shortage of descriptors is not a refusal of the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from headrace.environment import Disk, Now
from headrace.node.replication.this_broker import ThisBroker
from headrace.node.storage.durability.durability import Submit
from headrace.node.storage.durability.open_files import is_shortage

log = logging.getLogger(__name__)

PROBE = "room-probe"
# A disk that takes this much is not full; less would be used up by the next batches.
PROBE_BYTES = 1 << 20
# A disk that was just refusing is left alone: the files that are due for removal make room.
QUIET_MS = 5_000


class RefusingFolders:
    __slots__ = ("_disk", "_now", "_folders", "_this", "_submit", "_refused_ms", "_probing")

    def __init__(
        self, disk: Disk, now: Now, folders: Iterable[str], this: ThisBroker, submit: Submit
    ) -> None:
        """`folders`: all data folders of this node. The list itself is `this.refusing`."""
        self._disk = disk
        self._now = now
        self._folders = sorted(set(folders), key=len, reverse=True)  # a folder may be in another
        self._this = this
        self._submit = submit
        self._refused_ms: dict[str, int] = {}  # time of the last refusal of each folder on the list
        self._probing: set[str] = set()

    def refused(self, path: str, problem: OSError) -> None:
        """Call after the disk refused an append to a file below `path`."""
        folder = self._folder_of(path)
        if folder is None or is_shortage(problem):
            return
        self._refused_ms[folder] = self._now.monotonic_ms
        if folder in self._this.refusing:
            return
        why = problem.strerror or str(problem)
        self._this.refusing[folder] = f"the disk of {folder} refuses appends ({why})"
        self._this.looks_soon = True
        if len(self._this.brokers) < 2:
            return  # nothing to do, and the refusal was logged already
        log.error(
            "the disk of %s refuses appends (%s): partitions with another in-sync replica get "
            "another leader, until there is room again", folder, why,
        )  # fmt: skip

    def look(self) -> None:
        """Call every second: try the folders that have refused nothing for a while."""
        for folder, refused_ms in self._refused_ms.items():
            is_quiet = self._now.monotonic_ms - refused_ms >= QUIET_MS
            if is_quiet and folder not in self._probing:
                self._probing.add(folder)
                self._submit(partial(self._probe, folder), self._report_of(folder))

    def _probe(self, folder: str) -> None:
        path = f"{folder}/{PROBE}"
        try:
            self._disk.write_file(path, [bytes(PROBE_BYTES)], flush=False)
        finally:
            self._disk.remove(path)

    def _report_of(self, folder: str) -> Callable[[OSError | None], None]:
        def report(problem: OSError | None) -> None:
            self._probing.discard(folder)
            if problem is not None and not is_shortage(problem):
                self._refused_ms[folder] = self._now.monotonic_ms
            elif problem is None and folder in self._refused_ms:
                del self._refused_ms[folder]
                del self._this.refusing[folder]
                if len(self._this.brokers) > 1:
                    log.warning("the disk of %s takes appends again", folder)

        return report

    def _folder_of(self, path: str) -> str | None:
        for folder in self._folders:
            if path.startswith(f"{folder}/"):
                return folder
        return None
