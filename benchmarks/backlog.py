"""Ways out of a backlog: how fast each drains it, and how fast records are parked and come back.

    python -m benchmarks.backlog [drain] [park] [--records N] [--rounds N] [--megabytes N]

- drain: a group is N records behind in a topic with two partitions, and a handler takes 5 ms (it
  sleeps, as one that waits for a database does). Two consumers by hand, which is all that two
  partitions can use; twenty by hand, of which eighteen have nothing to do; `widen --times 10`
  with twenty consumers, from the first forwarded record until all is drained; an app with
  `concurrency=20` and `order_by="key"`, one process, no other topic.
- park: records of 1,000 bytes into SQLite and into Parquet files, and back into the retry topic.

Consumers are threads of this process: they sleep, so they share its core well.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka

from headrace import App
from headrace.app.names import retry_topic, wide_topic
from headrace.client import Admin, Producer
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import ClientSettings
from headrace.services.backlog.parking import Parking
from headrace.services.backlog.widening import Widening
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from tests.interop.brokers import HeadraceNode

PARTITIONS = 2
TIMES = 10
HANDLER_S = 0.005
KEYS = 200
RECORD = b"x" * 1_000


class Handled:
    """Counts, and says when all are."""

    def __init__(self, whole: int) -> None:
        self._left = whole
        self._lock = threading.Lock()
        self.done = threading.Event()

    def one(self) -> None:
        time.sleep(HANDLER_S)
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.done.set()


def a_backlog(at: ClientSettings, topic: str, group: str, records: int, value: bytes) -> None:
    Admin(at).topics.create(topic, partitions=PARTITIONS)
    with Producer(at) as producer:
        for number in range(records):
            producer.send_one_way(topic, value, key=f"k{number % KEYS}")
    Groups(at).move(group, [Move(topic, p, None, 0, 0) for p in range(PARTITIONS)])


@contextmanager
def consumers(
    at: ClientSettings, topic: str, group: str, count: int, handled: Handled
) -> Iterator[None]:
    stop = threading.Event()

    def consume() -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": at.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                handled.one()
        consumer.close()

    threads = [threading.Thread(target=consume) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def by_hand(count: int) -> Callable[[ClientSettings, str, str, int], None]:
    def drain(at: ClientSettings, topic: str, group: str, records: int) -> None:
        handled = Handled(records)
        with consumers(at, topic, group, count, handled):
            assert handled.done.wait(600)

    return drain


def widened(at: ClientSettings, topic: str, group: str, records: int) -> None:
    widening = Widening(at, few_left=0)
    steps = widening.run(widening.plan(topic, group, TIMES), by="benchmark")
    next(steps)  # the wide topic is there, and a part is forwarded
    handled = Handled(records)
    forwarding = threading.Thread(target=lambda: _until_forwarded(steps), daemon=True)
    with consumers(at, wide_topic(topic, group), group, PARTITIONS * TIMES, handled):
        forwarding.start()
        assert handled.done.wait(600)
        forwarding.join(60)


def _until_forwarded(steps: Iterator[object]) -> None:
    for status in steps:
        if getattr(status, "not_forwarded", 1) == 0:
            return


def concurrent(at: ClientSettings, topic: str, group: str, records: int) -> None:
    app = App(at, group=group, delay="off")
    handled = Handled(records)

    @app.on(topic, order_by="key", concurrency=PARTITIONS * TIMES)
    def handle(value: bytes) -> None:
        handled.one()

    with app.running():
        assert handled.done.wait(600)


WAYS = {
    "2 consumers by hand": by_hand(PARTITIONS),
    "20 consumers by hand": by_hand(PARTITIONS * TIMES),
    "widen --times 10, 20 consumers": widened,
    "app, concurrency=20": concurrent,
}


def measure_drains(at: ClientSettings, records: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for place, (name, drain) in enumerate(WAYS.items()):
            topic, group = f"drain-{number}-{place}", f"group-{number}-{place}"
            a_backlog(at, topic, group, records, b"x" * 100)
            began = time.monotonic()
            drain(at, topic, group, records)
            rates[name].append(records / (time.monotonic() - began))
    first = statistics.median(rates["2 consumers by hand"])
    print(f"\n{records:,} records behind, handlers of 5 ms, {rounds} rounds: records/s")
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:32} {median:8,.0f}  ({min(found):,.0f} .. {max(found):,.0f})"
              f"  {median / first:5.1f}x")  # fmt: skip


def measure_parking(at: ClientSettings, megabytes: int, rounds: int) -> None:
    print(f"\n{megabytes} MB of records of 1,000 bytes, {rounds} rounds: MB/s (processor s per GB)")
    for kind in ("sqlite", "parquet"):
        speeds: dict[str, list[tuple[float, float]]] = {"park": [], "bring back": []}
        for number in range(rounds):
            topic, group = f"park-{kind}-{number}", f"parkers-{kind}-{number}"
            a_backlog(at, topic, group, megabytes * 1_000, RECORD)
            Admin(at).topics.create(retry_topic(topic, group), partitions=PARTITIONS)
            with tempfile.TemporaryDirectory() as folder:
                to = f"sqlite:///{folder}/p.db" if kind == "sqlite" else f"{folder}/parked"
                parking = Parking(at)
                with _timed(speeds["park"], megabytes):
                    for _ in parking.park(parking.plan(topic, group), to, by="benchmark"):
                        pass
                with _timed(speeds["bring back"], megabytes):
                    store, plan = parking.bring_back_plan(topic, group, to, Selection(), by="me")
                    for _ in parking.bring_back(store, plan, group, Pace()):
                        pass
        for what, found in speeds.items():
            rates = [rate for rate, _ in found]
            busy = statistics.median(seconds for _, seconds in found)
            print(f"{kind:8} {what:11} {statistics.median(rates):6.1f}  "
                  f"({min(rates):.1f} .. {max(rates):.1f})  {busy:5.1f}")  # fmt: skip


@contextmanager
def _timed(into: list[tuple[float, float]], megabytes: int) -> Iterator[None]:
    wall, busy = time.monotonic(), time.process_time()
    yield
    spent = time.process_time() - busy
    into.append((megabytes / (time.monotonic() - wall), spent / (megabytes / 1_000)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", metavar="drain|park")
    parser.add_argument("--records", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=50)
    asked = parser.parse_args()
    what = asked.what or ["drain", "park"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        node = stack.enter_context(HeadraceNode(Path(folder)))
        at = ClientSettings({"bootstrap.servers": node.bootstrap})
        if "drain" in what:
            measure_drains(at, asked.records, asked.rounds)
        if "park" in what:
            measure_parking(at, asked.megabytes, asked.rounds)


if __name__ == "__main__":
    main()
