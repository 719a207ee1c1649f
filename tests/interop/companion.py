"""A well-behaved client that goes on working while others misbehave."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from headrace.wire.protocol.messages import fetch, produce
from tests.conformance.batches import R, build
from tests.conformance.stage import Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)
from tests.conformance.wire import Connection, ConnectionClosed, NoAnswer
from tests.interop.brokers import Node


class Companion:
    """Produces a record and fetches it back, again and again, on one connection.

    How long each round took is counted without the time in which the broker or this thread stood
    in line for a processor: who else is on this machine is not what these tests are about.
    """

    def __init__(self, node: Node, topic: Topic) -> None:
        self.topic = topic
        self.latencies_s: list[float] = []
        self.trouble: Exception | None = None
        self._node = node
        self._connection = Connection(node.port, timeout_s=60)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began, before = time.monotonic(), self._in_line_s()
                self._round()
                took = time.monotonic() - began
                self.latencies_s.append(max(0.0, took - (self._in_line_s() - before)))
                time.sleep(0.002)
        except (AssertionError, OSError, ConnectionClosed, NoAnswer) as trouble:
            self.trouble = trouble

    def _in_line_s(self) -> float:
        """The second number is how long, in nanoseconds and in all."""
        who = (f"/proc/{self._node.pid}/schedstat", "/proc/thread-self/schedstat")
        return sum(int(Path(one).read_text().split()[1]) for one in who) / 1e9

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
        self._thread.join(60)
        self._connection.close()
