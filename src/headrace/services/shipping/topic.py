"""The topic that is shipped to: it must exist; if not, a message says how to create it."""

from __future__ import annotations

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic

LARGEST_BATCH_BYTES = 1_000_000  # librdkafka's own


def must_be_there(connection: ClientSettings, topic: str) -> str:
    """Returns the id of the cluster, or "" if the cluster does not send one."""
    topics = Topics(connection)
    cluster = topics.cluster
    if topic not in cluster.topics:
        try:
            topics.describe([topic])  # the list leaves out what this user may not see
        except NoSuchTopic as missing:
            raise NoSuchTopic(
                f"There is no topic {topic} at {connection.bootstrap}: make it with `headrace "
                f"topics create {topic} --partitions 3`, or name another one with --topic."
            ) from missing
    return cluster.cluster_id or ""


def largest_batch(connection: ClientSettings, topic: str) -> int:
    """Returns how many bytes of a batch the topic takes. A larger batch is refused as a whole, with
    the small records in it. A user who may not ask gets the default limit of topics."""
    try:
        said = Topics(connection).settings_of(topic)["max.message.bytes"].value
    except (ClientError, KeyError):
        return LARGEST_BATCH_BYTES
    return min(LARGEST_BATCH_BYTES, max(int(said), 1))
