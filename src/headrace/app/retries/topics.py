"""The topics that an app creates for itself: retries and dead letters, one pair per source topic.

They have as many partitions as their source: the owner of a source partition owns the retry
partition of the same number. An existing topic is not changed, except that partitions are added.
Several workers may do this at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container

from headrace.app.names import dead_topic, retry_topic
from headrace.app.subscription import Subscription
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.wire.contract import confirmations

log = logging.getLogger("headrace.app")

# Waiting copies exist only here: neither age nor size may delete them. Their owner deletes finished
# ones.
RETRY_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
SHARED_SETTINGS = ("min.insync.replicas",)
# The room for headers that a copy has beyond its source: those of a dead letter, and some more.
ROOM_FOR_HEADERS = 64 << 10


_OF_A_GROUP = re.compile(r"(.+)\.[A-Za-z0-9_-]+\.(?:retry|dead|wide)")
_OF_DELAYS = re.compile(r"(.+)\.delay(?:\.rejected|\.outcomes)?")


def is_derived(topic: str, there: Container[str]) -> bool:
    """Whether a topic belongs to another existing one, or to the cluster: patterns do not include
    it."""
    if topic.startswith("__"):
        return True
    for form in (_OF_A_GROUP, _OF_DELAYS):
        found = form.fullmatch(topic)
        if found is not None and found[1] in there:
            return True
    return False


def ensure_confirmations(connection: ClientSettings) -> None:
    """Make the topic where `confirm=True` reports to outboxes that a message has had its effect."""
    Topics(connection).ensure(
        confirmations.TOPIC, partitions=confirmations.PARTITIONS, settings=confirmations.SETTINGS
    )


class AppTopics:
    def __init__(
        self, connection: ClientSettings, *, group: str, dead_letters_keep_ms: int
    ) -> None:
        self._connection = connection
        self._group = group
        self._dead_settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(dead_letters_keep_ms),
            "retention.bytes": "-1",
        }

    def sources(self, subscriptions: list[Subscription]) -> dict[str, Subscription]:
        """Every existing topic that has a handler; raises if one that is given by name is
        missing."""
        there = Topics(self._connection).cluster.topics
        found: dict[str, Subscription] = {}
        for subscription in subscriptions:
            for given in subscription.topics:
                if not given.startswith("^") and given not in there:
                    hidden = ", or this user may not see it" if self._connection.is_secured else ""
                    raise NoSuchTopic(
                        f"There is no topic {given}, which {subscription.name} handles{hidden}. "
                        f"Create it with `headrace topics create {given}`."
                    )
            for topic in sorted(there):
                named = topic in subscription.topics
                if subscription.matches(topic) and (named or not is_derived(topic, there)):
                    found.setdefault(topic, subscription)
        return found

    def ensure(self, sources: dict[str, Subscription]) -> dict[str, int]:
        """Create what is missing for these topics; returns how many partitions each of them has."""
        counts = {}
        topics = Topics(self._connection)
        for topic, subscription in sources.items():
            source = topics.cluster.topics.get(topic)
            if source is None:
                continue
            count = counts[topic] = len(source.partitions)
            replication = max(len(p.replicas) for p in source.partitions.values())
            wanted = {retry_topic(topic, self._group): RETRY_SETTINGS}
            if subscription.dead_letters:
                wanted[dead_topic(topic, self._group)] = self._dead_settings
            for name, settings in wanted.items():
                self._ensure_one(topics, topic, name, count, replication, settings)
        return counts

    def _ensure_one(
        self,
        topics: Topics,
        source: str,
        name: str,
        count: int,
        replication: int,
        settings: dict[str, str],
    ) -> None:
        there = topics.cluster.topics.get(name)
        if there is None:
            own = topics.settings_of(source)
            shared = {
                key: own[key].value
                for key in SHARED_SETTINGS
                if key in own and own[key].source == "topic"
            }
            if "max.message.bytes" in own:
                largest = int(own["max.message.bytes"].value) + ROOM_FOR_HEADERS
                shared["max.message.bytes"] = str(largest)
            try:
                topics.create(
                    name, partitions=count, replication=replication, settings=settings | shared
                )
                log.info("made the topic %s with %d partitions", name, count)
            except ClientError as failure:
                if failure.code != "TOPIC_ALREADY_EXISTS":
                    raise
        elif len(there.partitions) < count:
            try:
                topics.grow(name, partitions=count)
            except ClientError as failure:
                if failure.code != "INVALID_PARTITIONS":  # another worker was faster
                    raise
