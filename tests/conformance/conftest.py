"""The two brokers that conformance compares, told the same settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import TARGET, Node, make_node

SETTINGS = {
    "node.id": "1",
    # Apache Kafka would put a new assignment off; without that the answers have an order.
    "group.consumer.assignment.interval.ms": "0",
    # So that groups can be full, and transactions be given up, without long waits.
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    "group.share.max.size": "3",
    "group.share.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with make_node("apache", tmp_path_factory.mktemp("oracle"), SETTINGS) as node:
        yield node


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with make_node(TARGET, tmp_path_factory.mktemp("ours"), SETTINGS) as node:
        yield node
