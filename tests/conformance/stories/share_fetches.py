"""ShareFetch and ShareAcknowledge 1-2: what is acquired, acknowledged and refused."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    find_coordinator,
    incremental_alter_configs,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from headrace.wire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import UNKNOWN

GROUPS = 32
VERSIONS = (1, 2)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOTHING: dict[str, Any] = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}


class Member:
    """A member of a share group that reads one topic from its beginning."""

    def __init__(self, stage: Stage, group: str, name: str, version: int) -> None:
        self.stage, self.group, self.name, self.version = stage, group, name, version
        self.epoch = 0

    def join(self, topic: Topic) -> None:
        changes = [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        resource = AlterConfigsResource(GROUPS, self.group, changes)
        request = IncrementalAlterConfigsRequest([resource])
        self.stage.connection.ask(incremental_alter_configs, 1, request)
        self.stage.publish()
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.stage.connection.ask(find_coordinator, 4, find)  # makes __consumer_offsets
        self.member_epoch = 0

        def is_assigned() -> bool:
            beat = ShareGroupHeartbeatRequest(
                self.group, self.name, self.member_epoch, None, [topic.name]
            )
            answer: Any = self.stage.connection.ask(share_group_heartbeat, 1, beat)
            if answer.error_code == 0:
                self.member_epoch = answer.member_epoch
            return bool(answer.assignment is not None and answer.assignment.topic_partitions)

        self.stage.until(is_assigned)

    def first(self, line: str, topic: Topic, **others: Any) -> None:
        """The first answer with records: an earlier one may come before the state is read."""
        self.begun: Any = None

        def has_begun() -> bool:
            request = self.request(0, others)
            request.topics = [FetchTopic(topic.id, [FetchPartition(0)])]
            self.begun = self.stage.connection.ask(share_fetch, self.version, request)
            parts = [part for each in self.begun.responses for part in each.partitions]
            return any(part.acquired_records for part in parts)

        self.stage.until(has_begun)
        self.stage.keep(f"v{self.version} {line}", self.begun)
        self.epoch = 1

    def request(self, epoch: int, others: dict[str, Any]) -> ShareFetchRequest:
        request = ShareFetchRequest(self.group, self.name, epoch, 500, 1, 1 << 20, 500, 500)
        for name, value in others.items():
            setattr(request, name, value)
        return request

    def fetch(
        self,
        line: str,
        topic: Topic | None = None,
        *batches: tuple[int, int, list[int]],
        partitions: tuple[int, ...] = (0,),
        epoch: int | None = None,
        **others: Any,
    ) -> Any:
        wanted = self.epoch if epoch is None else epoch
        request = self.request(wanted, others)
        if topic is not None:
            given = [share_fetch.AcknowledgementBatch(*each) for each in batches]
            parts = [FetchPartition(index, given) for index in partitions]
            request.topics = [FetchTopic(topic.id, parts)]
        answer = self.stage.ask(f"v{self.version} {line}", share_fetch, self.version, request)
        if answer is not None and answer.error_code == 0:
            self.epoch = wanted + 1
        return answer

    def acknowledge(
        self,
        line: str,
        topic: Topic,
        *batches: tuple[int, int, list[int]],
        epoch: int | None = None,
        partition: int = 0,
        **others: Any,
    ) -> Any:
        wanted = self.epoch if epoch is None else epoch
        request = ShareAcknowledgeRequest(self.group, self.name, wanted)
        for name, value in others.items():
            setattr(request, name, value)
        given = [share_acknowledge.AcknowledgementBatch(*each) for each in batches]
        request.topics = [AcknowledgeTopic(topic.id, [AcknowledgePartition(partition, given)])]
        answer = self.stage.ask(f"v{self.version} {line}", share_acknowledge, self.version, request)
        if answer is not None and answer.error_code == 0:
            self.epoch = wanted + 1
        return answer


def records_from_hand_to_hand(stage: Stage) -> None:
    for version in VERSIONS:
        topic = stage.topic(f"shared-v{version}")
        stage.produce(topic, build(R(b"a"), R(b"b"), R(b"c")), build(R(b"d")), build(R(b"e")))
        one = Member(stage, f"share-v{version}", "one", version)
        other = Member(stage, f"share-v{version}", "other", version)
        one.join(topic)
        one.first("all of it", topic)
        other.fetch("nothing left", topic)
        one.acknowledge("accept two", topic, (0, 1, [ACCEPT]))
        one.acknowledge("one of each", topic, (2, 4, [RELEASE, REJECT, GAP]))
        other.fetch("what was released")
        other.acknowledge("of another", topic, (0, 1, [ACCEPT]))
        one.acknowledge("not mine any more", topic, (2, 2, [ACCEPT]))
        other.acknowledge("beyond the end", topic, (90, 99, [ACCEPT]))
        stage.produce(topic, build(R(b"f")))
        other.fetch("accepted on the way", topic, (2, 2, [ACCEPT]))
        other.fetch("released on the way", topic, (5, 5, [RELEASE]))
        other.fetch("last words", topic, (5, 5, [ACCEPT]), epoch=-1)
        other.fetch("after the end", epoch=3)
        one.acknowledge("the end", topic, epoch=-1)


def requests_that_go_wrong(stage: Stage) -> None:
    for version in VERSIONS:
        topic = stage.topic(f"shared-wrong-v{version}", partitions=2)
        stage.produce(topic, build(R(b"a"), R(b"b"), R(b"c")))
        one = Member(stage, f"share-wrong-v{version}", "one", version)
        one.join(topic)
        one.fetch("no group", topic, group_id=None)
        one.fetch("no member", topic, member_id=None)
        one.fetch("empty member", topic, member_id="")
        one.fetch("long member", topic, member_id="m" * 37)
        one.fetch("no session", topic, epoch=3)
        one.fetch("no session to end", epoch=-1)
        one.fetch("acknowledges at once", topic, (0, 0, [ACCEPT]))
        one.acknowledge("acknowledges without a session", topic, (0, 0, [ACCEPT]), epoch=4)
        one.acknowledge("begins with it", topic, (0, 0, [ACCEPT]), epoch=0)
        one.fetch("unknown partition", topic, partitions=(9,))
        one.epoch = 0
        one.first("begun", topic)
        one.fetch("wrong epoch", epoch=7)
        for name, batch in {
            "backwards": (2, 1, [ACCEPT]),
            "too few types": (0, 2, [ACCEPT, ACCEPT]),
            "no types": (0, 2, []),
            "type 5": (0, 2, [5]),
            "type -1": (0, 2, [-1]),
            "renew without saying so": (0, 2, [RENEW]),
        }.items():
            one.acknowledge(name, topic, batch)
            one.fetch(f"{name}, with a fetch", topic, batch, max_wait_ms=0)
        one.acknowledge("overlapping", topic, (0, 1, [ACCEPT]), (1, 2, [ACCEPT]))
        one.acknowledge("nothing", topic)
        one.acknowledge("unknown partition acknowledged", topic, (0, 1, [ACCEPT]), partition=9)
        one.acknowledge("of a partition without records", topic, (0, 1, [ACCEPT]), partition=1)
        one.acknowledge("unknown topic acknowledged", UNKNOWN, (0, 1, [ACCEPT]))
        one.acknowledge("nobody's", topic, (0, 1, [ACCEPT]), member_id=None)
        one.acknowledge("no group's", topic, (0, 1, [ACCEPT]), group_id=None)
        one.fetch("end", epoch=-1)


def renewed_and_limited(stage: Stage) -> None:
    topic = stage.topic("shared-limits")
    stage.produce(topic, build(*(R(bytes([number])) for number in range(10))))
    one, other = (Member(stage, "share-limits", name, 2) for name in ("one", "other"))
    one.join(topic)
    one.first("three of ten", topic, max_records=3, share_acquire_mode=1)
    one.fetch("renew with a wish", topic, (0, 0, [RENEW]), is_renew_ack=True)
    one.fetch("renew", topic, (0, 0, [RENEW]), is_renew_ack=True, **NOTHING)
    one.acknowledge("renew and accept", topic, (0, 1, [RENEW, ACCEPT]), is_renew_ack=True)
    other.fetch("batches of a wish for one", topic, max_records=1)
    other.fetch("no records wanted", max_records=0, max_wait_ms=0)
    other.fetch("forget", forgotten_topics_data=[ForgottenTopic(topic.id, [0])], max_wait_ms=0)
    one.fetch("end of one", epoch=-1)
    other.fetch("end of other", epoch=-1)


def sessions_that_begin_again(stage: Stage) -> None:
    # Of one partition: Apache names an idle one only until it has read its state.
    topic = stage.topic("shared-again")
    stage.produce(topic, build(R(b"a")), build(R(b"b")))
    one = Member(stage, "share-again", "one", 2)
    one.join(topic)
    one.first("first", topic, max_records=1)
    one.epoch = 0
    one.fetch("again", topic, max_wait_ms=100)
    one.acknowledge("what the first one had", topic, (0, 0, [ACCEPT]))
    one.fetch("empty", max_wait_ms=100)
    one.fetch("end", epoch=-1)


STORIES = (
    records_from_hand_to_hand,
    requests_that_go_wrong,
    renewed_and_limited,
    sessions_that_begin_again,
)
