"""Which topics take delayed messages: enable, disable, list them, cancel with an outcome.

To enable `orders` is to create its companion `orders.delay` and the topics beside it, and to write
the pair into the registry, a compacted topic that the delay service follows. Every step may be
repeated: existing topics stay, missing ones are created. To disable is to remove the pair from the
registry; nothing is deleted, and enabling again continues with the pending messages.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError

from headrace.client.admin.own_topics import OwnTopic, ensure_own
from headrace.client.admin.topics import TopicDescription, Topics
from headrace.client.connection import ClientSettings, connected
from headrace.client.delay.cancellation import Cancelled, Cancelling
from headrace.client.delay.instances import DelayInstances
from headrace.client.delay.registry import no_topic_to_delay, not_delayed, registrations
from headrace.client.errors import ClientError, sentence
from headrace.client.producer.record_writer import RecordWriter
from headrace.wire.contract import delay_topics
from headrace.wire.contract.delay_topics import Registration

# Pending records are the state: neither age nor size may delete them. Their time is the broker's
# append time, so that a producer's wrong clock delays nothing.
COMPANION_SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
REGISTRY_SETTINGS = {"cleanup.policy": "compact"}
SHOWN_AGAIN_S = 0.05
DEFAULT_LARGEST_BYTES = 1_048_588  # of max.message.bytes
# The settings that a companion takes over from its target, if they are set there.
SHARED_SETTINGS = ("max.message.bytes", "min.insync.replicas")


class DelayedTopics:
    """Enables topics for delayed messages; lists and cancels messages: `admin.delayed`."""

    def __init__(
        self, connection: ClientSettings, *, wall_s: Callable[[], float] = time.time
    ) -> None:
        self.connection = connection
        self._wall_s = wall_s
        self._cancelling = Cancelling(connection)
        weakref.finalize(self, self._cancelling.close)

    def all(self) -> list[Registration]:
        """Every registered pair, by name."""
        return registrations(self.connection)

    def require(self, topic: str) -> Registration:
        """The pair of a topic, or `NotDelayed`."""
        for pair in self.all():
            if pair.target == topic:
                return pair
        raise not_delayed(topic)

    def enable(self, topic: str, *, is_new: bool = False) -> Registration:
        """Let `topic` take delayed messages from now on; does nothing if it does already.

        `is_new`: the caller has just created the topic, so its brokers may not show it yet.
        """
        try:
            new = delay_topics.register(topic, int(self._wall_s() * 1000))
        except ValueError as failure:
            raise ClientError(sentence(str(failure))) from failure
        if is_new:
            self._wait_for(topic)
        topics = Topics(self.connection)
        if topic not in topics.cluster.topics:
            raise no_topic_to_delay(topic, self.connection)
        [target] = topics.describe([topic])
        self._make_companion(topics, target)
        # A rejected record is the original with a reason.
        largest = max(int(target.setting("max.message.bytes", "0")), DEFAULT_LARGEST_BYTES)
        stamped = delay_topics.STAMPED_BY_THE_BROKER
        room = {"max.message.bytes": str(min(2 * largest, 2**31 - 1)), **stamped}
        _make(topics, delay_topics.rejected_of(topic), target, room)
        _make(topics, delay_topics.outcomes_of(topic), target, stamped)
        if delay_topics.REGISTRY not in topics.cluster.topics:
            _make(topics, delay_topics.REGISTRY, target, REGISTRY_SETTINGS, partitions=1)
            self._wait_for(delay_topics.REGISTRY)
        ensure_own(topics, OwnTopic(delay_topics.REGISTRY, 1, REGISTRY_SETTINGS))
        for pair in self.all():
            if pair.target == topic:
                return pair
        self._register(new.key, new.value)
        return new

    def disable(self, topic: str) -> Registration:
        """Stop delivery to `topic`; pending messages stay in the companion."""
        pair = self.require(topic)
        self._register(pair.key, None)
        return pair

    def cancel(
        self,
        topic: str,
        id: str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> Cancelled:
        """Cancel a delayed message, and wait for the outcome."""
        patience_s = self.connection.timeout_s if timeout_s is None else timeout_s
        return self._cancelling.cancel_and_wait(
            topic, id, key=key, partition=partition, timeout_s=patience_s
        )

    def close(self) -> None:
        """Close the clients that `cancel` keeps open; a later cancel opens new ones."""
        self._cancelling.close()

    @property
    def instances(self) -> DelayInstances:
        """The instances of the service, and the pending messages."""
        return DelayInstances(self.connection)

    def _wait_for(self, name: str) -> None:
        """Wait for a new topic: Apache Kafka's brokers know it a moment after it was made."""
        deadline = time.monotonic() + self.connection.timeout_s
        while name not in Topics(self.connection).cluster.topics:
            if time.monotonic() > deadline:
                raise ClientError(f"{name} was made, but the cluster does not show it.")
            time.sleep(SHOWN_AGAIN_S)

    def _make_companion(self, topics: Topics, target: TopicDescription) -> None:
        name = delay_topics.companion_of(target.name)
        wanted = len(target.partitions)
        own = target.own_settings()
        settings = COMPANION_SETTINGS | {k: own[k] for k in SHARED_SETTINGS if k in own}
        if _make(topics, name, target, settings):
            return
        [companion] = topics.describe([name])
        if any(companion.setting(key, "") != value for key, value in settings.items()):
            # It was created by hand, or by sending to it. Only then the right to alter it is
            # needed.
            topics.change_settings(name, to=settings)
        has = len(companion.partitions)
        if has > wanted:
            raise ClientError(
                f"{name} has {has} partitions and {target.name} has {wanted}: messages that wait "
                f"in the others could not be delivered. Give {target.name} as many with "
                f"`headrace topics alter {target.name} --partitions {has}`."
            )
        if has < wanted:
            topics.grow(name, partitions=wanted)

    def _register(self, key: bytes, value: bytes | None) -> None:
        # A record that a retry writes twice has the same meaning; an idempotent producer would
        # first ask for a producer id, which takes librdkafka up to a second and a half.
        at = connected(self.connection, {"enable.idempotence": False})
        with RecordWriter(at, delay_topics.REGISTRY) as registry:
            registry.write(value, key=key)


def _make(
    topics: Topics,
    name: str,
    like: TopicDescription,
    settings: Mapping[str, str],
    *,
    partitions: int | None = None,
) -> bool:
    """Create the topic; returns False if it existed."""
    try:
        topics.create(
            name,
            partitions=len(like.partitions) if partitions is None else partitions,
            replication=like.replication,
            settings=settings,
        )
    except ClientError as refusal:
        if refusal.code != KafkaError(KafkaError.TOPIC_ALREADY_EXISTS).name():
            raise
        return False
    return True
