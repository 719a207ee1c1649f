"""One client makes up names of groups and transactional ids, as many as it can.

Each kind of request in turn, on one node: what it may cost is bounded, others keep working, and
when sessions and retention are over nothing of it is listed any more. `IDS=100000` asks for as
many; by default it is fewer, so that the run is short: what one name costs is the same.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    find_coordinator,
    init_producer_id,
    join_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_fetch,
)
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.wire.protocol.primitives import Message
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_consumers import joining
from tests.conformance.stories.group_members import join
from tests.conformance.stories.group_offsets import commit, fetch, place
from tests.conformance.stories.group_offsets import with_coordinator as with_group
from tests.conformance.stories.transactions import with_coordinator as with_transactions
from tests.conformance.wire import Connection, decode_answer, encode_body, encode_header
from tests.interop.brokers import Node, make_node
from tests.interop.companion import Companion

IDS = int(os.environ.get("IDS", "10000"))
AT_ONCE = 200  # requests on their way
MEMBER_ID_REQUIRED = 79
MB = 1 << 20
# Short sessions and retention, so that the end of it can be waited for.
SHORT = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "2000",
    "offsets.retention.check.interval.ms": "1000",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


@dataclass(frozen=True)
class Kind:
    """One way to make names up, and what a name may cost a node, in bytes."""

    api: ModuleType
    version: int
    request: Callable[[str, Topic], Message]
    code: int  # of each answer
    most_bytes: int


KINDS = {
    "coordinators that are asked for": Kind(
        find_coordinator, 4, lambda name, _: FindCoordinatorRequest(name, 0, [name]), 0, 100
    ),
    "offsets that are asked for": Kind(
        offset_fetch, 9, lambda name, topic: fetch(9, name, topic, 0), 0, 300
    ),
    "member ids that are asked for": Kind(
        join_group, 9, lambda name, _: join(name, session_ms=6_000), MEMBER_ID_REQUIRED, 2_000
    ),
    "members of the classic protocol": Kind(
        join_group, 3, lambda name, _: join(name, session_ms=6_000), 0, 6_000
    ),
    "members of the consumer protocol": Kind(
        consumer_group_heartbeat, 1, lambda name, topic: joining(name, "m", topic.name), 0, 8_000
    ),
    "offsets of nobody": Kind(
        offset_commit,
        2,
        lambda name, topic: commit(name, topic, place(1), retention_ms=1_000),
        0,
        3_000,
    ),
    "transactional ids": Kind(
        init_producer_id, 5, lambda name, _: InitProducerIdRequest(name, 60_000), 0, 3_000
    ),
}


@pytest.fixture
def node(target: str, tmp_path: Path) -> Iterator[Node]:
    with make_node(target, tmp_path, SHORT) as node:
        yield node


def test_made_up_names_cost_little_and_are_forgotten(node: Node) -> None:
    stage = Stage(node)
    topic = stage.topic("made-up", partitions=2)
    with_group(stage, "made-up")
    with_transactions(stage, "made-up")
    with Companion(node, topic) as companion:
        for word, kind in KINDS.items():
            node.forget_peak()
            before = node.memory_bytes()
            flood(node, kind, word, topic)
            cost = (node.peak_memory_bytes() - before) / IDS
            if node.name == "headrace":
                allowed = kind.most_bytes + 10 * MB / IDS
                assert cost < allowed, f"{word}: {cost:.0f} bytes each, of {allowed:.0f} allowed"
        stage.until(lambda: listed(stage) == 0, within_s=60 + IDS / 500)
    assert companion.trouble is None, companion.trouble
    assert companion.slowest_s < 5.0, f"a round trip took {companion.slowest_s:.2f} s"
    stage.drop()


def flood(node: Node, kind: Kind, word: str, topic: Topic) -> None:
    """So many requests, each with a name of its own; all are answered as they should be."""
    connection = Connection(node.port, timeout_s=60)
    flexible = kind.version >= kind.api.FLEXIBLE_FROM
    try:
        for first in range(0, IDS, AT_ONCE):
            frames = []
            for number in range(first, min(first + AT_ONCE, IDS)):
                body = encode_body(kind.api, kind.version, kind.request(f"{word} {number}", topic))
                head = encode_header(kind.api.API_KEY, kind.version, number, flexible=flexible)
                frames.append(struct.pack(">i", len(head) + len(body)) + head + body)
            connection.socket.sendall(b"".join(frames))
            for _ in frames:
                answer = decode_answer(kind.api, kind.version, connection.receive_frame())
                assert code_of(answer) == kind.code, answer
    finally:
        connection.close()


def code_of(answer: Any) -> int:
    """The first code in an answer that is for one name."""
    for outer in ("coordinators", "groups"):
        if getattr(answer, outer, None):
            return int(getattr(answer, outer)[0].error_code)
    if hasattr(answer, "topics"):
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code)


def listed(stage: Stage) -> int:
    groups: Any = stage.connection.ask(list_groups, 5, ListGroupsRequest())
    ids: Any = stage.connection.ask(list_transactions, 1, ListTransactionsRequest())
    return len(groups.groups) + len(ids.transaction_states)
