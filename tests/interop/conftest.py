"""Fixtures of the interop tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.clients import (
    Aiokafka,
    Client,
    ConfluentKafka,
    JavaProgram,
    KafkaPython,
    Kcat,
    go_program,
    node_program,
)
from tests.interop.java_session import JavaSession
from tests.interop.tools import built_go_program, installed_node_program

SETTINGS = {
    "num.partitions": "1",
    # Members of the newer protocol hear of changes at their next word: often, so that nobody waits.
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


@pytest.fixture(scope="session")
def target() -> str:
    return TARGET


@pytest.fixture(scope="session")
def broker(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One running broker for all tests that only need topics of their own."""
    with make_node(target, tmp_path_factory.mktemp(target), SETTINGS) as node:
        yield node


@pytest.fixture(scope="session")
def java() -> Iterator[JavaSession]:
    """One JVM for all of Apache's tools."""
    with JavaSession() as session:
        yield session


@pytest.fixture(scope="session")
def clients(java: JavaSession) -> dict[str, Client]:
    """Every client by its name; the programs among them are built here."""
    everyone: list[Client] = [
        ConfluentKafka(),
        Aiokafka(),
        KafkaPython(),
        Kcat(),
        JavaProgram(java),
        go_program(built_go_program()),
        node_program(installed_node_program()),
    ]
    return {client.name: client for client in everyone}
