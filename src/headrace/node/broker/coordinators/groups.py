"""The group coordinator of this broker: its topic, its settings, and how handlers call a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.environment import Now
from headrace.node.broker.coordinators.coordinators import Coordinator, replicas_of_topic
from headrace.node.broker.coordinators.partition_journal import journal_of
from headrace.node.broker.coordinators.share_group_states import begin_states
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.consumer_group import ConsumerGroup
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.offsets import OffsetCopies
from headrace.node.coordination.group.settings import (
    GroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
)
from headrace.node.coordination.group.subscriptions import EVERYTHING, Sight, long_trials
from headrace.node.coordination.shard import UNKNOWN, Decision, Later, Shard
from headrace.node.metadata import configs
from headrace.node.serving.api import Call, WaitingRequest
from headrace.node.serving.rights import GROUP, TOPIC, require
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

OFFSETS_TOPIC = "__consumer_offsets"
NOTHING_OF_ITS_OWN: Mapping[str, Any] = {}
MOST_SETTINGS_REMEMBERED = 1_000  # of share and streams groups
OFFSETS_PER_STEP = 200  # offsets of deleted topics; one takes 4 us
OneGroup = TypeVar("OneGroup", ShareGroupSettings, StreamsGroupSettings)
GROUP_KEY = 0  # FindCoordinator's key type of a group id


class GroupCoordinator(Coordinator):
    """A `Coordinator` whose machines read the broker's current settings."""

    __slots__ = (
        "_broker",
        "_new_id",
        "_settings",
        "_settings_of",
        "_kept_settings",
        "_kept_settings_of",
        "_gone_meanwhile",
    )

    def __init__(self, broker: Broker, new_id: Callable[[], str]) -> None:
        self._broker = broker
        self._new_id = new_id
        self._settings: GroupSettings | None = None
        self._settings_of: Any = None  # the values from which the settings were built
        self._kept_settings: dict[tuple[Any, str], Any] = {}
        self._kept_settings_of: tuple[Any, Any] = (None, None)  # built from these values and image
        self._gone_meanwhile: set[str] = set()  # topics that were deleted while shards are loading
        super().__init__(
            OFFSETS_TOPIC,
            self._machine,
            self._topic_rules,
            broker.purgatory,
            broker.confirmed_reads,
            broker.coordinator_appended,
            broker.loads,
            broker.chores,
            lambda: int(broker.values["offsets.commit.timeout.ms"]),
            compression=broker.values["offsets.topic.compression.codec"],
        )

    def settings(self) -> GroupSettings:
        broker = self._broker
        if self._settings is None or self._settings_of is not broker.values:
            self._settings_of = broker.values
            self._settings = GroupSettings.from_values(
                broker.values, self._of_group, self.share_settings, self.streams_settings
            )
        return self._settings

    def share_settings(self, group_id: str) -> ShareGroupSettings:
        """Returns the settings of a share group, which any broker knows."""
        return self._settings_of_one(ShareGroupSettings, group_id)

    def streams_settings(self, group_id: str) -> StreamsGroupSettings:
        return self._settings_of_one(StreamsGroupSettings, group_id)

    def _settings_of_one(self, kind: type[OneGroup], group_id: str) -> OneGroup:
        """Returns the settings of one group; cached until settings change."""
        broker = self._broker
        values, kept = self._kept_settings_of
        if values is not broker.values or kept is not broker.image.configs:
            self._kept_settings_of = broker.values, broker.image.configs
            self._kept_settings.clear()
        found: OneGroup | None = self._kept_settings.get((kind, group_id))
        if found is None:
            if len(self._kept_settings) >= MOST_SETTINGS_REMEMBERED:
                self._kept_settings.clear()
            group = configs.group_values(broker.given, broker.image.configs, group_id)
            found = kind.from_values(group, broker.values)
            self._kept_settings[kind, group_id] = found
        return found

    def _of_group(self, group_id: str) -> Mapping[str, Any]:
        kept = self._broker.image.configs
        if (configs.ResourceType.GROUP, group_id) not in kept:
            return NOTHING_OF_ITS_OWN
        return configs.group_values(self._broker.given, kept, group_id)

    def _machine(self, answered: list[Later]) -> GroupMachine:
        return GroupMachine(answered, self.settings, self._new_id, lambda: self._broker.image)

    def _topic_rules(self) -> tuple[int, int, Mapping[str, str]]:
        values = self._broker.values
        return (
            values["offsets.topic.num.partitions"],
            replicas_of_topic(self._broker.peers, values["offsets.topic.replication.factor"]),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(values["offsets.topic.segment.bytes"]),
            },
        )

    def ask_shard(
        self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        response = super().ask_shard(shard, now, decide, *arguments)
        machine: GroupMachine = shard.machine  # type: ignore[assignment]
        if machine.share.to_initialize:
            wanted, machine.share.to_initialize = machine.share.to_initialize, []
            for initialization in wanted:
                begin_states(self._broker, initialization)
        return response

    def forget_shared_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Forget deleted topics in share groups; the share coordinator deletes its own state of
        them."""
        for shard in list(self.shards.values()):
            with suppress(KafkaError):  # retried when the groups are loaded
                self.ask_shard(shard, self._broker.now, forget_shared_topics, topic_ids)

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Forget the committed offsets of deleted topics."""
        if self.loading:
            self._gone_meanwhile |= topics
        for shard in list(self.shards.values()):
            self._forget_topics(shard, topics)

    def _forget_topics(self, shard: Shard, topics: frozenset[str]) -> None:
        machine: GroupMachine = shard.machine  # type: ignore[assignment]
        if shard.applied_to == UNKNOWN:
            return  # loaded again, or its log is damaged: the offsets stay until they expire
        # Offsets that are committed from now on may belong to a new topic with the same name.
        steps = self._forget_places(shard, machine.offsets.copies(), topics)
        if machine.offsets.count > OFFSETS_PER_STEP:
            self._broker.chores.add(steps)
        else:
            at_once(steps)

    def _forget_places(self, shard: Shard, offsets: OffsetCopies, topics: frozenset[str]) -> Steps:
        for places in offsets.of_topics(topics, OFFSETS_PER_STEP):
            if not journal_of(shard).is_led:
                return
            if places:
                # If the disk refuses the record, the offsets stay until they expire.
                with suppress(KafkaError):
                    self.ask_shard(shard, self._broker.now, offset_rules.forget_places, places)
            yield

    def _opened(self, shard: Shard) -> None:
        machine: GroupMachine = shard.machine  # type: ignore[assignment]
        if machine.share.groups and shard.damage is None:
            with suppress(KafkaError):
                self.ask_shard(shard, self._broker.now, forget_unknown_topics)
        if self._gone_meanwhile:
            made_again = self._broker.image.topics.keys()
            self._forget_topics(shard, frozenset(self._gone_meanwhile - made_again))
            if not self.loading:
                self._gone_meanwhile.clear()


def ask_group(
    broker: Broker,
    call: Call,
    decide: Callable[..., Any],
    request: Any,
    sight: Sight | None = None,
) -> Any | WaitingRequest:
    """Returns the answer of the group that `request.group_id` names; raises refusals.

    Needs READ on the group, as do all requests that only members send. Pass `sight` if patterns
    were tried before (`long_trials_of`).
    """
    require(broker, call, Operation.READ, GROUP, request.group_id)
    require_group_id(request.group_id)
    host = f"/{call.session.client_host}"
    client = Client(call.client_id(), host, call.version, sight or sight_of(broker, call))
    return broker.groups.ask(request.group_id, call.now, decide, request, client, call.now)


def long_trials_of(
    broker: Broker, group_id: str, regex: str | None, sight: Sight
) -> dict[str, Collection[str]]:
    """Returns the patterns of this group that would hold the loop if its next decision tried them
    all."""
    shard = broker.groups.shard_of(group_id)
    if shard.applied_to == UNKNOWN:
        return {}
    machine: GroupMachine = shard.machine  # type: ignore[assignment]
    group = machine.groups.get(group_id)
    of_its_kind = group if isinstance(group, ConsumerGroup) else None
    return long_trials(of_its_kind, regex, broker.image.topics, sight.change)


def count_of_offsets(broker: Broker, group_id: str) -> int:
    """Returns 0 if this broker does not coordinate the group: the refusal is quick."""
    try:
        machine: GroupMachine = broker.groups.shard_of(group_id).machine  # type: ignore[assignment]
    except KafkaError:
        return 0
    return len(machine.offsets.of(group_id))


def forget_shared_topics(machine: GroupMachine, topic_ids: frozenset[bytes]) -> Decision:
    return machine.share.forget_topics(topic_ids)


def forget_unknown_topics(machine: GroupMachine) -> Decision:
    known = machine.share.image().topics_by_id
    kept = [key for group in machine.share.groups.values() for one in group.shared for key in one]
    return machine.share.forget_topics(frozenset(key for key in kept if key not in known))


def is_share_group(broker: Broker, group_id: str) -> bool:
    """Returns whether this broker coordinates a share group of this name. Raises KafkaError if
    another broker coordinates the name."""
    shard = broker.groups.shard_of(group_id)
    machine: GroupMachine = shard.machine  # type: ignore[assignment]
    return group_id in machine.share.groups


def sight_of(broker: Broker, call: Call) -> Sight:
    """Returns the topics that patterns may match: only those that the member may describe."""
    authorizer, session = broker.authorizer, call.session
    if authorizer is None:
        return EVERYTHING

    def sees(topic: str) -> bool:
        return authorizer.allows(session, Operation.DESCRIBE, TOPIC, topic, quietly=True)

    return Sight(sees, authorizer.changes)


def require_group_id(group_id: str | None) -> None:
    """Refuses a missing or empty name: membership never allowed it, although offset commits once
    did."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID.description)
