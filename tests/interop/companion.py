"""A well-behaved client that goes on working while others misbehave."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from headrace.protocol.messages import fetch, produce
from tests.conformance.batches import R, build
from tests.conformance.stage import Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)
from tests.conformance.wire import Connection, ConnectionClosed, NoAnswer


class Companion:
    """Produces a record and fetches it back, again and again, on one connection."""

    def __init__(self, port: int, topic: Topic) -> None:
        self.topic = topic
        self.latencies_s: list[float] = []
        self.trouble: Exception | None = None
        self._connection = Connection(port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._round()
                self.latencies_s.append(time.monotonic() - began)
                time.sleep(0.002)
        except (AssertionError, OSError, ConnectionClosed, NoAnswer) as trouble:
            self.trouble = trouble

    def _round(self) -> None:
        sent = self._connection.ask(
            produce, 13, produce_request(13, self.topic, build(R(b"companion")))
        )
        result = sent.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        assert result.error_code == 0, result
        wanted = fetch_topic(13, self.topic, from_offset(result.base_offset))
        got = self._connection.ask(fetch, 13, fetch_request(wanted))
        found = got.responses[0].partitions[0]  # type: ignore[attr-defined]
        assert found.error_code == 0 and b"companion" in bytes(found.records), found

    @property
    def slowest_s(self) -> float:
        return max(self.latencies_s, default=float("inf"))

    def __enter__(self) -> Companion:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        self._connection.close()
