"""Widenings that have not ended, as the journal knows them (`services/backlog/widening.py`).

While one is under way, the group's backlog is in the wide topic as well, and the group's offsets in
the source are moved at its end. Another operation that moves them, or takes records from there,
would cause records to be handled twice or would move the group in vain.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.app.names import wide_topic
from headrace.client.admin.topics import Topics
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.services.replay import journal
from headrace.services.replay.journal import CopyEntry, Journal

# States of a widening beside those of every copy.
DRAINING, ABORTED = "draining", "aborted"


class IsWidened(ClientError):
    """One sentence: what to do about the widening first."""


def begun(known: Journal, group: str) -> list[CopyEntry]:
    """Returns the widenings of this group that have not ended, also those whose wide topic
    is gone."""
    return [entry for entry in known.copies.values() if _is_of(entry, group)]


def require_none(connection: Connection, group: str, topics: Iterable[str]) -> None:
    """Refuses if a widening is under way. One of an earlier topic of the same name does not
    count."""
    names = set(topics)
    found = [e for e in begun(journal.read_journal(connection), group) if e.topic in names]
    ids = Topics(connection).ids({entry.topic for entry in found}) if found else {}
    for entry in found:
        if ids[entry.topic] == entry.topic_id:
            raise IsWidened(
                f"The backlog of {group} in {entry.topic} is being widened: let `headrace backlog "
                f"widen {entry.topic} --group {group} --execute` end first, or give it up with "
                "--abort."
            )


def _is_of(entry: CopyEntry, group: str) -> bool:
    return (
        entry.name.startswith("widen/")
        and entry.state in (journal.UNDER_WAY, DRAINING)
        and entry.to_topic == wide_topic(entry.topic, group)
    )
