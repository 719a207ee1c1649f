"""Have an app's group handle chosen records again: by its retry topic, which only it reads.

Offsets can only be moved for whole stretches of a partition. Single records go the way of redriven
dead letters: into `<topic>.<group>.retry`, into the partition of their origin, with their first
place, time and message id. A handler with `once=` passes over what it has handled: a record that is
to have its effect once more needs an id of its own (`as_new`).
"""

from __future__ import annotations

from headrace.app import headers as names
from headrace.app.names import retry_topic
from headrace.app.once.message_ids import place_id, sent_id
from headrace.client.records import Outgoing, Record
from headrace.services.replay.topic_copy import CannotCopy, Dress
from headrace.services.replay.trail import with_trail

# Headers of an earlier failure or delivery; the app would take them for this record's own.
_DROPPED = names.RETRY | names.ON_THE_WAY | {names.MESSAGE_ID}


def require_retry_topic(topic: str, group: str, partitions: dict[str, int]) -> str:
    """The group's retry topic; refuses a group that has none."""
    name = retry_topic(topic, group)
    if name not in partitions:
        raise CannotCopy(
            f"Group {group} has no topic {name}: it is not an app of Headrace. Another group can "
            "only read whole stretches again: leave out key, header, expression, error and --until."
        )
    if partitions[name] < partitions.get(topic, 0):
        raise CannotCopy(
            f"Topic {name} has fewer partitions than {topic}: start the app once, which adds them."
        )
    return name


def retried(
    topic_id: str, to_topic: str, committed: dict[int, int], *, new_ids: str | None
) -> Dress:
    """`committed` are the group's offsets: what it has not read yet comes by itself. `new_ids`
    names the replay whose records count as new ones."""

    def dress(record: Record) -> Outgoing[bytes, bytes] | None:
        if record.offset >= committed.get(record.partition, 0):
            return None
        place = f"{record.topic}/{record.partition}/{record.offset}"
        # As the app would name it in its topic: `once=` must know it.
        message_id = sent_id(record.headers) or place_id(place, topic_id)
        if new_ids is not None:
            message_id = f"{message_id}~replay~{new_ids}"
        headers = [pair for pair in with_trail(record) if pair[0] not in _DROPPED]
        headers.append((names.ORIGIN, place.encode()))
        if record.timestamp_ms is not None:
            headers.append((names.ORIGIN_AT, b"%d" % record.timestamp_ms))
        headers.append((names.CARRIED_ID, message_id.encode()))
        return Outgoing(to_topic, record.value, record.key, headers, record.partition, None)

    return dress
