"""Which records a micro-batch has taken: from the offsets that Spark's checkpoint keeps of it.

Spark writes a batch's ends down before it runs: a version, the batch's own settings, and a line for
each source. It begins where the batch before ended, and the first one where the stream began.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.pipelines.stream.backfill import EARLIEST, Offsets, begun_at


def ends(checkpoint: Path, number: int) -> Offsets:
    """Returns the end offsets of a batch, by topic and partition, for a stream with one source."""
    lines = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
    found: Offsets = json.loads(lines[-1])
    return found


def taken(checkpoint: Path, number: int) -> tuple[Offsets, Offsets]:
    """Where a batch begins and where it ends."""
    last = ends(checkpoint, number)
    before = ends(checkpoint, number - 1) if number else begun_at(checkpoint) or {}
    return filled(before, last), last


def filled(first: Offsets, last: Offsets) -> Offsets:
    """A beginning for each end: a partition that came later begins at its first record."""
    return {
        topic: {one: first.get(topic, {}).get(one, EARLIEST) for one in partitions}
        for topic, partitions in last.items()
    }


def last_done(checkpoint: Path) -> int | None:
    """The number of the last batch that was committed."""
    numbers = [int(one.name) for one in (checkpoint / "commits").glob("[0-9]*")]
    return max(numbers, default=None)
