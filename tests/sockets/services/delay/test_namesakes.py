"""Two processes under one instance name: the newer one takes over, the older one ends.

One that was fenced by a request of its own, which came late, goes on.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Producer
from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.services.delay.intake import Fenced
from headrace.services.delay.service import DelayService
from headrace.testing import Broker
from headrace.wire.protocol.messages import join_group

pytestmark = pytest.mark.integration

PATIENCE_S = 180.0


def test_the_older_of_two_namesakes_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = Admin(broker.bootstrap)
        admin.topics.create("orders", partitions=1)
        admin.delayed.enable("orders")
        older = DelayService(broker.bootstrap, folder=tmp_path / "older", instance="same")
        ends: list[BaseException] = []

        def run() -> None:
            try:
                older.run()
            except Fenced as fenced:
                ends.append(fenced)

        first = threading.Thread(target=run)
        first.start()
        assert older.wait_until_started(PATIENCE_S)
        newer = DelayService(broker.bootstrap, folder=tmp_path / "newer", instance="same")
        second = threading.Thread(target=newer.run)
        second.start()
        try:
            first.join(PATIENCE_S)
            assert len(ends) == 1 and "group.instance.id" in str(ends[0])
            traces = [each for each in caplog.records if each.exc_info]
            assert not traces, "who started it hears a sentence, and no traceback before it"
            with (
                Producer(broker.bootstrap) as producer,
                Consumer(broker.bootstrap, topics=["orders"], group="g") as consumer,
            ):
                producer.send_sync("orders", "v", delay="1ms")
                record = consumer.poll(PATIENCE_S)
            assert record is not None and record.value == b"v"
        finally:
            older.stop()
            newer.stop()
            first.join(PATIENCE_S)
            second.join(PATIENCE_S)


def test_a_member_that_is_fenced_by_its_own_late_request_goes_on(tmp_path: Path) -> None:
    """As when the broker is lost between two requests to join and reads the first one last."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = Admin(broker.bootstrap)
        admin.topics.create("orders", partitions=1)
        admin.delayed.enable("orders")
        service = DelayService(broker.bootstrap, folder=tmp_path / "one", instance="one")
        running = threading.Thread(target=service.run)
        running.start()
        try:
            assert service.wait_until_started(PATIENCE_S)
            join_once(broker.bootstrap, service.group, "one")
            with (
                Producer(broker.bootstrap) as producer,
                Consumer(broker.bootstrap, topics=["orders"], group="g") as consumer,
            ):
                producer.send_sync("orders", "v", delay="1ms")
                record = consumer.poll(PATIENCE_S)
            assert record is not None and record.value == b"v"
            assert service.problem is None
        finally:
            service.stop()
            running.join(PATIENCE_S)


def join_once(bootstrap: str, group: str, instance: str) -> None:
    """A request to join whose answer nobody reads."""
    host, port = bootstrap.split(":")
    protocol = join_group.JoinGroupRequestProtocol("cooperative-sticky", b"\0\0\0\0\0\0\0\0\0\0")
    request = join_group.JoinGroupRequest(
        group, 10_000, 10_000, "", instance, "consumer", [protocol]
    )
    with Wire(ClientSettings({"bootstrap.servers": bootstrap}), (host, int(port))) as wire:
        answer = wire.ask(join_group, request)
    assert answer.error_code == 0, answer
