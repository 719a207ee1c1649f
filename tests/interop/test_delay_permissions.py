"""The delay service on a cluster with permissions: what it may not write to waits, the rest flows.

Apache Kafka with its own authorizer. Everybody may do everything, but nobody may write to one
topic. librdkafka does not always tell which topic of a transaction it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.brokers import Node, make_node
from tests.services.delay_checker import Ledger, Watcher, judge, make_delayed_topic
from tests.services.delay_process import DelayProcess

WITHIN_S = 400.0
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with make_node("apache", tmp_path / "node", AUTHORIZER) as node:
        yield node


def rule(topic: str, operation: AclOperation, permission: AclPermissionType) -> tuple[Any, ...]:
    where = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    return *where, "User:ANONYMOUS", "*", operation, permission


def forbid(admin: AdminClient, topic: str) -> None:
    """Where one rule stands, others are needed for what shall still be allowed."""
    rules = [
        rule(topic, AclOperation.ALL, AclPermissionType.ALLOW),
        rule(topic, AclOperation.WRITE, AclPermissionType.DENY),
    ]
    for answer in admin.create_acls([AclBinding(*each) for each in rules]).values():
        answer.result(WITHIN_S)


def permit(admin: AdminClient, topic: str) -> None:
    denied = AclBindingFilter(*rule(topic, AclOperation.WRITE, AclPermissionType.DENY))
    [answer] = admin.delete_acls([denied]).values()
    assert len(answer.result(WITHIN_S)) == 1


@pytest.mark.parametrize("forbidden", ["locked", "locked.delay.outcomes"])
def test_a_target_that_may_not_be_written_to_waits_and_its_neighbours_flow(
    node: Node, tmp_path: Path, forbidden: str
) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for topic in ("open", "locked", "another"):
        make_delayed_topic(node.bootstrap, topic, 2)
    forbid(admin, forbidden)
    ledgers = {topic: Ledger(node.bootstrap, topic) for topic in ("open", "locked", "another")}
    watchers = {topic: Watcher(node.bootstrap, topic) for topic in ledgers}
    due_ms = int(time.time() * 1000) + 3_000
    with DelayProcess(node.bootstrap, tmp_path) as service:
        for topic in ledgers:
            service.wait_for_partitions(topic, 2, WITHIN_S)
        for topic, ledger in ledgers.items():
            for number in range(100):
                value = f"{topic} {number}".encode()
                ledger.send(value, partition=number % 2, at_ms=due_ms + number)
            ledger.cancel("nobody", partition=0)
            ledger.flush()
        for topic in ("open", "another"):
            watchers[topic].wait_for(100, WITHIN_S)
        deadline = time.monotonic() + WITHIN_S
        while "may not write to" not in str(service.ask("/stats")):
            assert time.monotonic() < deadline, service.ask("/stats")
            time.sleep(0.1)
        for number in range(100, 200):  # and they go on
            ledgers["open"].send(b"open %d" % number, partition=0)
        ledgers["open"].flush()
        watchers["open"].wait_for(200, WITHIN_S)
        assert service.ask("/stats")["aborted"] < 20, "not again and again"
        permit(admin, forbidden)
        watchers["locked"].wait_for(100, WITHIN_S)
        for topic, ledger in ledgers.items():
            judge(ledger.sent, watchers[topic].stop()).require_clean()
