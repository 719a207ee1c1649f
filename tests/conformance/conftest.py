"""The two brokers that conformance compares, told the same settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import TARGET, Node, make_node

# Apache Kafka would put a new assignment off; without that the answers have an order.
SETTINGS = {"node.id": "1", "group.consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with make_node("apache", tmp_path_factory.mktemp("oracle"), SETTINGS) as node:
        yield node


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with make_node(TARGET, tmp_path_factory.mktemp("ours"), SETTINGS) as node:
        yield node
