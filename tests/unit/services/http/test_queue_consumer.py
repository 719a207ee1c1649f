"""The share consumer behind HTTP requests: what is given, held and refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoShareGroups
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.share_session import RefusedAcknowledgement
from headrace.services.http.queues import queue_consumer
from headrace.services.http.queues.open_queues import OpenQueues
from headrace.services.http.queues.queue_consumer import NOT_HELD, Acknowledging, QueueConsumer


class Cluster:
    """A share group with these offsets; those of `expired` are refused."""

    def __init__(self, *offsets: int) -> None:
        self.there = list(offsets)
        self.expired: set[int] = set()
        self.said: list[tuple[str, int]] = []
        self.refuses: ClientError | None = None
        self.before_giving: Callable[[], None] = lambda: None

    def __call__(self, *_: Any, **__: Any) -> Cluster:
        if self.refuses is not None:
            raise self.refuses
        return self

    def poll(self, most: int, wait_s: float) -> list[ShareRecord]:
        self.before_giving()
        given, self.there = self.there[:most], self.there[most:]
        until = time.monotonic() + 30
        return [
            ShareRecord("jobs", 0, offset, 1, "create", None, b"1", [], 1, locked_until=until)
            for offset in given
        ]

    def accept(self, record: ShareRecord) -> None:
        self.said.append(("accept", record.offset))

    def release(self, *records: ShareRecord) -> None:
        self.said += [("release", record.offset) for record in records]

    def renew(self, record: ShareRecord) -> None:
        self.said.append(("renew", record.offset))

    def take_refused(self) -> list[RefusedAcknowledgement]:
        return []

    def commit(self, timeout_s: float) -> list[RefusedAcknowledgement]:
        return [RefusedAcknowledgement("jobs", 0, at, at, "too late") for at in self.expired]

    def close(self) -> None:
        self.said.append(("close", 0))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(5, 6, 7)
    monkeypatch.setattr(queue_consumer, "ShareConsumer", made)
    return made


def consumer(name: str = "q") -> QueueConsumer:
    return QueueConsumer(
        ClientSettings({}), group="g", topics=["jobs"], start_from="earliest", name=name
    )


def test_a_record_is_acknowledged_once_by_its_id(cluster: Cluster) -> None:
    async def story() -> None:
        queue = consumer()
        first, second = await queue.acquire(2, 1.0)
        assert [(each.id, each.record.offset) for each in (first, second)] == [
            ("q.1", 5), ("q.2", 6),
        ]  # fmt: skip
        assert await queue.acknowledge(Acknowledging.RENEW, ["q.1"]) == {}
        assert await queue.acknowledge(Acknowledging.ACCEPT, ["q.1"]) == {}
        assert await queue.acknowledge(Acknowledging.ACCEPT, ["q.1", "q.9"]) == {
            "q.1": NOT_HELD, "q.9": NOT_HELD,
        }  # fmt: skip
        cluster.expired = {6}
        assert await queue.acknowledge(Acknowledging.ACCEPT, ["q.2"]) == {"q.2": "too late"}
        await queue.close()
        assert cluster.said == [("renew", 5), ("accept", 5), ("accept", 6), ("close", 0)]

    asyncio.run(story())


def test_records_for_a_client_that_has_gone_go_back(cluster: Cluster) -> None:
    async def story() -> None:
        loop, gone = asyncio.get_running_loop(), threading.Event()
        queue = consumer()
        waiting = asyncio.create_task(queue.acquire(3, 60.0))
        waiting.add_done_callback(lambda _: gone.set())

        def goes() -> None:
            loop.call_soon_threadsafe(waiting.cancel)
            assert gone.wait(30)

        cluster.before_giving = goes
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await queue.close()
        assert cluster.said == [("release", 5), ("release", 6), ("release", 7), ("close", 0)]

    asyncio.run(story())


def test_a_queue_that_failed_is_made_again(cluster: Cluster) -> None:
    async def story() -> None:
        queues = OpenQueues("d", most=2, idle_s=60)
        cluster.refuses = NoShareGroups("none here")
        with (
            pytest.raises(NoShareGroups),
            queues.of_topics("ada", "g", ["jobs"], consumer) as queue,
        ):
            await queue.acquire(1, 1.0)
        cluster.refuses = None
        with queues.of_topics("ada", "g", ["jobs"], consumer) as queue:
            [held] = await queue.acquire(1, 1.0)
        with queues.of_topics("ada", "g", ["jobs"], consumer) as again:
            assert again is queue
        assert len(queues) == 1
        with queues.named("bob", "g", held.id.rpartition(".")[0]) as strange:
            assert strange is None
        await queue.close()

    asyncio.run(story())


def test_a_request_that_waits_long_does_not_hold_up_one_that_does_not(cluster: Cluster) -> None:
    cluster.there = []

    async def story() -> None:
        queue = consumer()
        patient = asyncio.create_task(queue.acquire(1, 60.0))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(queue.acquire(1, 0.0), 30) == []
        assert not patient.done()
        cluster.there = [5]
        [held] = await patient
        assert held.record.offset == 5
        await queue.close()

    asyncio.run(story())
