"""A topic that was deleted and made anew: its offsets mean other records than a checkpoint's.

Spark goes on at the offsets it knows; if the new topic holds more records than the old one did, the
first of them would never be read, and nobody would be told. So the ids of the topics are kept
beside the checkpoint and looked at when a run begins. Not noticed: a topic that is deleted, made
and filled beyond the old offsets while a batch runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.topics import Topics
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder


def check(folder: Folder, connection: Connection, names: Iterable[str]) -> None:
    """Refuses to go on with a checkpoint of topics that are not there any more."""
    if not (names := list(names)):  # it reads a table
        return
    try:
        now = Topics(connection).ids(names)
    except ClientError as failure:
        raise PipelineError(str(failure)) from failure
    known = folder.topic_ids() if folder.has_begun() else {}
    anew = [name for name, one in sorted(now.items()) if known.get(name, one) != one]
    if anew:
        raise PipelineError(
            f"{', '.join(anew)} was deleted and made anew since {folder.name} ran: the offsets in "
            f"its checkpoint mean other records. Begin anew with `headrace pipeline reset "
            f"{folder.name}`."
        )
    folder.keep_topic_ids(known | now)
