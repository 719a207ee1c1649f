"""How long does it take until a group of a hundred members is balanced?

A hundred consumers, all in one process with a connection each, join a new group on a topic of 100
partitions at the same moment. Classic protocol: from the first JoinGroup until all members hold
their SyncGroup reply of one generation. KIP-848: from the first ConsumerGroupHeartbeat until all
members own what the coordinator gave them in one epoch. Members behave as clients do (required
member id, the leader assigns, what is revoked is acknowledged), but ask after 20 ms where a client
would wait for its heartbeat interval of seconds, which would hide the broker. Neither broker delays
the first rebalance or an assignment. At the end each partition must have exactly one owner.
Warm-up: five balances with each protocol in front of ten measured ones.
"""

from __future__ import annotations

import select
import socket
import time
import uuid
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    consumer_protocol_assignment,
    consumer_protocol_subscription,
    heartbeat,
    join_group,
    leave_group,
    metadata,
    sync_group,
)

from . import coordinators, wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import Usage, measured
from .results import Better, Goal, Row, Samples

TOPIC = "balanced"
MEMBERS = PARTITIONS = 100
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 30_000, 60_000
ASK_AFTER_S = 0.02
BALANCED_WITHIN_S = 60.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, CONSUMER_VERSION = 9, 5, 4, 1
LEAVE_VERSION = 5
CODEC_VERSION = 0  # of subscriptions and assignments
LEAVES = -1  # member epoch


@dataclass(slots=True)
class Member:
    """What both protocols' members have: a connection with at most one request in flight."""

    socket: socket.socket
    group: str
    member_id: str = ""
    epoch: int = 0  # generation, or member epoch
    owned: list[int] = field(default_factory=list)
    is_settled: bool = False  # owns what it was given in this epoch
    waits_for: tuple[Any, int] = (None, 0)
    ask_at: float = 0.0  # when a settled member asks next; infinite while a reply is due

    def send(self, messages: Any, version: int, request: Any) -> None:
        self.waits_for = (messages, version)
        self.ask_at = float("inf")
        self.socket.sendall(wire.request_frame(messages, version, request))

    def reply(self) -> Any:
        messages, version = self.waits_for
        return wire.response_of(messages, version, wire.receive_frame(self.socket))

    def begin(self) -> None:
        raise NotImplementedError

    def take(self) -> None:
        raise NotImplementedError

    def ask(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    def begin(self) -> None:
        self.is_settled = False
        protocol = join_group.JoinGroupRequestProtocol("range", subscription())
        request = join_group.JoinGroupRequest(
            self.group,
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self.member_id,
            None,
            "consumer",
            [protocol],
        )
        self.send(join_group, JOIN_VERSION, request)

    def take(self) -> None:
        answer = self.reply()
        code = answer.error_code
        messages = self.waits_for[0]
        if messages is join_group and code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.begin()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS or code in coordinators.NOT_YET:
            self.begin()
        else:
            wire.succeed(code, messages.NAME)
            if messages is join_group:
                self._sync(answer)
            else:
                if messages is sync_group:
                    self.owned = assigned(answer.assignment)
                    self.is_settled = True
                self.ask_at = time.perf_counter() + ASK_AFTER_S

    def _sync(self, joined: Any) -> None:
        self.epoch = joined.generation_id
        shares = []
        if joined.leader == joined.member_id:
            everybody = [member.member_id for member in joined.members]
            for at, member_id in enumerate(everybody):
                share = assignment(list(range(at, PARTITIONS, len(everybody))))
                shares.append(sync_group.SyncGroupRequestAssignment(member_id, share))
        request = sync_group.SyncGroupRequest(
            self.group, self.epoch, self.member_id, None, "consumer", "range", shares
        )
        self.send(sync_group, SYNC_VERSION, request)

    def ask(self) -> None:
        request = heartbeat.HeartbeatRequest(self.group, self.epoch, self.member_id)
        self.send(heartbeat, HEARTBEAT_VERSION, request)

    def leave(self) -> None:
        gone = leave_group.MemberIdentity(self.member_id)
        request = leave_group.LeaveGroupRequest(self.group, members=[gone])
        self.send(leave_group, LEAVE_VERSION, request)


class ConsumerMember(Member):
    topic_id: ClassVar[bytes] = bytes(16)

    def begin(self) -> None:
        self.member_id = str(uuid.uuid4())
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            server_assignor="uniform",
            topic_partitions=[],
        )
        self.send(consumer_group_heartbeat, CONSUMER_VERSION, request)

    def take(self) -> None:
        answer = self.reply()
        if answer.error_code in coordinators.NOT_YET:
            self.begin()
            return
        wire.succeed(answer.error_code, "ConsumerGroupHeartbeat")
        if answer.member_epoch < 0:
            return  # it has left
        self.epoch = answer.member_epoch
        self.is_settled = True
        if answer.assignment is None:
            self.ask_at = time.perf_counter() + ASK_AFTER_S
            return
        given = [part for topic in answer.assignment.topic_partitions for part in topic.partitions]
        if sorted(given) == sorted(self.owned):
            self.ask_at = time.perf_counter() + ASK_AFTER_S
            return
        self.owned = given
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Tell at once what is owned now, as a client does after its callbacks."""
        self.is_settled = False
        owned = [consumer_group_heartbeat.TopicPartitions(self.topic_id, self.owned)]
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, self.epoch, topic_partitions=owned if self.owned else []
        )
        self.send(consumer_group_heartbeat, CONSUMER_VERSION, request)

    def ask(self) -> None:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, self.epoch
        )
        self.send(consumer_group_heartbeat, CONSUMER_VERSION, request)

    def leave(self) -> None:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, LEAVES
        )
        self.send(consumer_group_heartbeat, CONSUMER_VERSION, request)


def subscription() -> bytes:
    return encoded(
        consumer_protocol_subscription,
        consumer_protocol_subscription.ConsumerProtocolSubscription([TOPIC]),
    )


def assignment(partitions: list[int]) -> bytes:
    part = consumer_protocol_assignment.TopicPartition(TOPIC, partitions)
    return encoded(
        consumer_protocol_assignment,
        consumer_protocol_assignment.ConsumerProtocolAssignment([part]),
    )


def encoded(messages: Any, message: Any) -> bytes:
    """Two bytes of version in front, as clients write it."""
    pieces: list[bytes] = []
    messages.ENCODE[CODEC_VERSION](message, pieces.append)
    return CODEC_VERSION.to_bytes(2, "big") + b"".join(pieces)


def assigned(data: bytes) -> list[int]:
    message, _ = consumer_protocol_assignment.DECODE[CODEC_VERSION](memoryview(data), 2)
    return [part for topic in message.assigned_partitions for part in topic.partitions]


def is_balanced(members: list[Member]) -> bool:
    if not all(member.is_settled for member in members):
        return False
    if len({member.epoch for member in members}) != 1:
        return False
    return sorted(part for member in members for part in member.owned) == list(range(PARTITIONS))


def balance(members: list[Member]) -> None:
    """All join at once; returns when each partition has its owner."""
    by_fd = {member.socket.fileno(): member for member in members}
    poller = select.epoll()
    for fd, member in by_fd.items():
        poller.register(fd, select.EPOLLIN)
        member.begin()
    deadline = time.perf_counter() + BALANCED_WITHIN_S
    while not is_balanced(members):
        for fd, _what in poller.poll(ASK_AFTER_S / 4):
            by_fd[fd].take()
        now = time.perf_counter()
        for member in members:
            if member.ask_at <= now:
                member.ask()
        if now > deadline:
            settled = sum(member.is_settled for member in members)
            raise TimeoutError(f"{settled} members have settled in {BALANCED_WITHIN_S} s")
    poller.close()


def end(members: list[Member]) -> None:
    """Leave the group, so that it costs the next one nothing."""
    for member in members:
        if member.ask_at == float("inf"):
            member.reply()
        member.leave()
        member.reply()
        member.socket.close()


def balanced_group(broker: Broker, kind: type[Member], name: str) -> Usage:
    with wire.connect(broker.port) as connection:
        coordinators.find(connection, [name], coordinators.GROUP)
    members = [kind(wire.connect(broker.port), name) for _ in range(MEMBERS)]
    usage = measured(broker, lambda: balance(members))
    end(members)
    return usage


def prepare(broker: Broker) -> None:
    with wire.connect(broker.port) as connection:
        wire.create_topics_with(connection, [TOPIC], partitions=PARTITIONS)
        ConsumerMember.topic_id = topic_id_of(connection)


def topic_id_of(connection: socket.socket) -> bytes:
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
    answer = wire.ask(connection, metadata, wire.METADATA_VERSION, request)
    found: bytes = answer.topics[0].topic_id
    return found


def measure(run: Run) -> Samples:
    run.target.settings |= SETTINGS
    samples: Samples = {}
    with run.target.start() as broker:
        prepare(broker)
        kinds: dict[str, type[Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}
        for protocol, kind in kinds.items():
            for number in range(run.count(5, 1)):
                balanced_group(broker, kind, f"warm-{protocol}-{number}")
            usages = [
                balanced_group(broker, kind, f"{protocol}-{number}")
                for number in range(run.count(10, 2))
            ]
            whole = together(usages)
            run.watch_noise(f"balance of a {protocol} group", whole)
            samples[protocol] = [1e3 * median(usage.wall_s for usage in usages)]
            samples[f"{protocol} cpu"] = [1e3 * whole.broker_s / len(usages)]
    return samples


def together(usages: list[Usage]) -> Usage:
    return Usage(
        wall_s=sum(usage.wall_s for usage in usages),
        broker_s=sum(usage.broker_s for usage in usages),
        client_s=sum(usage.client_s for usage in usages),
        others_s=sum(usage.others_s for usage in usages),
    )


BENCHMARK = Benchmark(
    "Balancing a group of 100 members",
    (
        Row("classic", "classic protocol", "ms", Goal(Better.LESS, ratio=1.0)),
        Row("classic cpu", "classic protocol, broker CPU", "ms"),
        Row("consumer", "consumer protocol (KIP-848)", "ms", Goal(Better.LESS, ratio=1.0)),
        Row("consumer cpu", "consumer protocol (KIP-848), broker CPU", "ms"),
    ),
    measure,
    rounds=2,
)
