"""Removes or finishes the files that an interrupted deletion or compaction left in a log's
folder."""

from __future__ import annotations

from collections.abc import Callable

from headrace.environment import Disk
from headrace.node.storage.segments.segment import DELETED

CLEANED = ".cleaned"
SWAP = ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
FILE_SUFFIXES = (".log", *INDEX_SUFFIXES)  # in the order in which they are renamed


def finish_interrupted_work(
    disk: Disk, folder: str, names: list[str], next_offset_of_swap: Callable[[int, str], int]
) -> list[str]:
    """Remove what is useless from a folder with these names; returns the names that remain.

    A `.swap` file is a finished compacted segment: it replaces the segments that it was made from.
    With a `.cleaned` file of the same or an earlier offset beside it, it is half of an unfinished
    split, and is removed with it. As Apache Kafka does.
    """
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    first_cleaned = min((offset_of(name) for name in cleaned), default=None)
    if first_cleaned is not None:
        cleaned += [name for name in swaps if offset_of(name) >= first_cleaned]
        swaps = [name for name in swaps if name not in cleaned]
    removed = {name for name in names if name.endswith((DELETED, ".tmp"))}
    removed.update(cleaned, _replaced_by(swaps, names, next_offset_of_swap))
    logs = {offset_of(name) for name in names if name.endswith(".log")}
    removed.update(n for n in names if n.endswith(INDEX_SUFFIXES) and offset_of(n) not in logs)
    for name in removed:
        disk.remove(f"{folder}/{name}")
    for name in swaps:
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    return disk.list(folder) if removed or swaps else names


def _replaced_by(
    swaps: list[str], names: list[str], next_offset_of_swap: Callable[[int, str], int]
) -> list[str]:
    """The files of the segments that the swapped-in ones were made from."""
    logs = [name for name in swaps if name.endswith(".log" + SWAP)]
    if not logs:
        return []
    lowest = min(offset_of(name) for name in logs)
    # The old files are also removed if no record of their segment is left: a remaining `.txnindex`
    # would make readers treat records of its producers as aborted.
    highest = max(
        max(next_offset_of_swap(offset_of(name), name), offset_of(name) + 1) for name in logs
    )
    return [
        name
        for name in names
        if name.endswith(FILE_SUFFIXES) and lowest <= offset_of(name) < highest
    ]


def offset_of(name: str) -> int:
    """The offset that a segment's file is named by; -1 if it is another file."""
    stem = name.split(".", 1)[0]
    return int(stem) if stem.isdigit() else -1
