"""A worker with a name of its own in the group, and another that takes the name."""

from __future__ import annotations

import pytest

from headrace.app import App
from headrace.client import Admin, Producer
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.testing import Broker
from headrace.wire.protocol.messages import join_group
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration


def test_a_worker_that_is_fenced_ends_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """It went on without a record, for ever: whoever watches it did not start it again."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        Admin(broker.bootstrap).topics.create("orders", partitions=1)
        settings: dict[str, str | int] = {"group.instance.id": "one", "heartbeat.interval.ms": 100}
        app = App(
            broker.bootstrap, group="billing", settings=settings, delay="off", start_from="earliest"
        )

        @app.on("orders")
        def bill(order: bytes) -> None:
            join_once(broker.bootstrap, "billing", "one")

        with Producer(broker.bootstrap, settings=FILLS) as producer:
            producer.send_sync("orders", "1")
        with pytest.raises(ClientError, match=r"same group\.instance\.id"):
            app.run()
    said = [each for each in caplog.records if "the worker stops" in each.getMessage()]
    assert len(said) == 1 and said[0].exc_info is None


def join_once(bootstrap: str, group: str, instance: str) -> None:
    """As another process of that name does."""
    host, port = bootstrap.split(":")
    protocols = [
        join_group.JoinGroupRequestProtocol(name, bytes(10)) for name in ("range", "roundrobin")
    ]
    protocols.append(join_group.JoinGroupRequestProtocol("cooperative-sticky", bytes(10)))
    request = join_group.JoinGroupRequest(
        group, 10_000, 10_000, "", instance, "consumer", protocols
    )
    with Wire(ClientSettings({"bootstrap.servers": bootstrap}), (host, int(port))) as wire:
        answer = wire.ask(join_group, request)
    assert answer.error_code == 0, answer
