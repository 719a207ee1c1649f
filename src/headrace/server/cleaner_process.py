"""Compacts one log and ends: `python -m headrace.server.cleaner_process`, see `cleaner.py`.

The job is JSON on standard input, reports are lines of JSON on standard output, which is a socket:
["cleaned", sources, bytes read, bytes written], then ["finished", offset] or ["failed", why,
whether the log is damaged]. Runs niced, keeps to the bytes per second it is given, and ends when
the other side of the socket is closed.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from contextlib import suppress
from dataclasses import astuple
from time import monotonic
from typing import Any

from headrace.protocol.errors import MalformedMessage
from headrace.server.real_disk import RealDisk
from headrace.storage.compaction import CleanedGroup, CleaningJob, clean
from headrace.storage.leftovers import CLEANED
from headrace.storage.segment import file_name

NICENESS = 10
# Waits that are shorter cost more than they bring.
SHORTEST_WAIT_S = 0.02


class NobodyWaits(Exception):
    """The node has ended or given the job up."""


class Pace:
    """Called with every byte read or written: waits as the limit says."""

    def __init__(self, door: socket.socket, bytes_per_second: float) -> None:
        self._door = selectors.DefaultSelector()
        self._door.register(door, selectors.EVENT_READ)
        self._bytes_per_second = bytes_per_second
        self._free_at = monotonic()

    def __call__(self, length: int) -> None:
        now = monotonic()
        self._free_at = max(self._free_at, now) + length / self._bytes_per_second
        wait = self._free_at - now
        # Nothing is ever sent this way: when it can be read, it was closed.
        if self._door.select(wait if wait > SHORTEST_WAIT_S else 0):
            raise NobodyWaits


def main() -> None:
    with suppress(OSError):
        os.nice(NICENESS)
    door = socket.socket(fileno=os.dup(1))
    bytes_per_second, fields = json.load(sys.stdin)
    job = CleaningJob(**fields)

    def tell(*words: Any) -> None:
        door.sendall(json.dumps(words).encode() + b"\n")

    def cleaned(group: CleanedGroup) -> None:
        keep_time_of_writing(job.folder, group)
        tell("cleaned", *astuple(group))

    try:
        cleaned_to = clean(RealDisk(), job, Pace(door, max(bytes_per_second, 1.0)), cleaned)
    except (NobodyWaits, BrokenPipeError):
        return
    except MalformedMessage as damage:
        tell("failed", str(damage), True)
    except OSError as problem:
        tell("failed", f"{problem.filename or job.folder}: {problem.strerror}", False)
    else:
        tell("finished", cleaned_to)


def keep_time_of_writing(folder: str, group: CleanedGroup) -> None:
    """Retention counts from it where no record has a timestamp."""
    last = f"{folder}/{file_name(group.sources[-1], '.log')}"
    modified = os.stat(last).st_mtime_ns
    new = f"{folder}/{file_name(group.sources[0], '.log')}{CLEANED}"
    os.utime(new, ns=(modified, modified))


if __name__ == "__main__":
    main()
