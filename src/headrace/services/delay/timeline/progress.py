"""The progress of a partition of the intake: the contents of the group's committed offset.

A record of the intake is done if and only if its offset is below `position` and its
(due, offset) is not above `watermark`. Records below `far` that are not done have a copy in the
topic `headrace.delay.far`. All of it is in one commit, position as the offset and the rest as its
metadata, so it changes in the transaction that delivers. The commit names the topic by its id: one
that was deleted and created again has the same name, and nothing of it is done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from headrace.wire.contract.own_records import json_object, whole_number

# (due_ms, offset): the order of delivery within a partition.
DueKey = tuple[int, int]
BEFORE_ALL: DueKey = (-1, -1)

# Metadata of another version must stop an older service: it would deliver again what is done.
_VERSION = "headrace-delay/1 "


@dataclass(slots=True)
class IntakeProgress:
    position: int = 0  # `c`: intake offsets below it are taken
    watermark: DueKey = BEFORE_ALL  # `W`: of those, everything up to it is done
    far: int = 0  # `F`: of those, whatever is below it and not done is in the far topic


class Commit(NamedTuple):
    """The contents of one commit of the group for a partition."""

    progress: IntakeProgress
    by: str  # the transactional id that wrote it
    topic_id: str | None = None  # of the companion; None: written before commits named it

    def progress_of(self, topic_id: str) -> IntakeProgress:
        """The contents for the topic that has this id now: nothing, if the commit was for another
        topic."""
        if self.topic_id is not None and self.topic_id != topic_id:
            return IntakeProgress()
        return self.progress


def to_metadata(
    progress: IntakeProgress, transactional_id: str, topic_id: str | None = None
) -> str:
    """The commit's metadata: all but the position, and who wrote it (to be fenced by others)."""
    due_ms, offset = progress.watermark
    fields: dict[str, int | str] = {
        "due": due_ms,
        "offset": offset,
        "far": progress.far,
        "by": transactional_id,
    }
    if topic_id is not None:
        fields["topic"] = topic_id
    return _VERSION + json.dumps(fields, separators=(",", ":"))


def from_commit(offset: int, metadata: str | None) -> Commit:
    """Reads a commit. Raises ValueError for metadata of another program.

    To go on with the position alone would deliver once more everything that is done and kept.
    """
    text = metadata or ""
    try:
        if not text.startswith(_VERSION):
            raise ValueError("it has another beginning")
        fields = json_object(text.removeprefix(_VERSION))
        watermark = whole_number(fields["due"]), whole_number(fields["offset"])
        named = fields.get("topic")
        return Commit(
            IntakeProgress(offset, watermark, whole_number(fields["far"])),
            str(fields["by"]),
            None if named is None else str(named),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"the commit at offset {offset} was not written by this version of the delay service: "
            f"'{text[:200]}' ({error})"
        ) from error
