"""A broker that is halted keeps its port open and says nothing; another one is asked."""

from __future__ import annotations

import socket
import time

import pytest

from headrace.client import wire
from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError
from headrace.client.wire import wire_to_any
from headrace.testing import Broker
from headrace.wire.protocol.messages import describe_cluster


def test_another_broker_is_asked_and_the_silent_one_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PATIENCE_WITH_ONE_OF_SEVERAL_S", 0.3)
    with Broker() as broker, socket.create_server(("127.0.0.1", 0)) as halted:
        connection = ClientSettings({"bootstrap.servers": broker.bootstrap})
        everybody = [halted.getsockname(), *addresses(broker.bootstrap)]
        for _ in range(2):
            with wire_to_any(connection, everybody) as found:
                answer = found.ask(describe_cluster, describe_cluster.DescribeClusterRequest())
            assert len(answer.brokers) == 1
            assert connection.silent == {halted.getsockname()}


def test_one_broker_alone_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as halted:
        connection = ClientSettings({}, timeout_s=0.5)
        began = time.monotonic()
        with (
            wire_to_any(connection, [halted.getsockname()]) as found,
            pytest.raises(ClientError, match="did not answer"),
        ):
            found.version_of(describe_cluster)
        assert time.monotonic() - began > 0.4
