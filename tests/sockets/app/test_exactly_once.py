"""Consume, transform, produce in one transaction: what a failure or a stop leaves is seen by
nobody.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace import App, Message, Publish, Retry
from headrace.app.worker.intake import WorkerIntake
from headrace.client import Admin
from headrace.client.faults import Fault

pytestmark = pytest.mark.usefixtures("quick_producers")


@pytest.mark.parametrize(("order_by", "kind"), [(None, "coroutine"), ("partition", "function")])
def test_every_record_leads_to_its_results_once(cluster: Any, order_by: Any, kind: str) -> None:
    cluster.topic("in", partitions=3)
    cluster.topic("out", partitions=2)
    app = App(cluster.bootstrap, group="g")

    def double(value: str, message: Message) -> Any:
        if value == "7" and message.attempt < 3:
            raise OSError("not yet")
        if value == "9":
            raise ValueError("never")
        return [Publish("out", value + "a"), Publish("out", value + "b")]

    async def double_async(value: str, message: Message) -> Any:
        return double(value, message)

    app.on(
        "in",
        exactly_once=True,
        order_by=order_by,
        retry=Retry(attempts=3, first="5ms", longest="5ms"),
    )(double if kind == "function" else double_async)
    with app.running():
        for number in range(500):
            app.send("in", str(number), key=str(number))
        cluster.until(lambda: app.subscriptions[0].stats.handled == 500)
    expected = {f"{n}{letter}".encode() for n in range(500) if n != 9 for letter in "ab"}
    seen = [record.value for record in cluster.records("out")]  # read_committed
    assert len(seen) == len(expected)
    assert set(seen) == expected
    assert [record.value for record in cluster.records("in.g.dead")] == [b"9"]
    committed = cluster.committed("g")
    counts = [sum(1 for r in cluster.records("in") if r.partition == p) for p in range(3)]
    assert [committed["in", p] for p in range(3)] == counts


@pytest.mark.parametrize("wrong", [{"concurrency": 2}, {"order_by": "key"}, {"batch": 5}])
def test_what_it_cannot_promise_is_refused_at_once(wrong: dict[str, Any]) -> None:
    app = App(group="g")
    with pytest.raises(ValueError, match="exactly_once"):

        @app.on("in", exactly_once=True, **wrong)
        async def handle(values: list[str]) -> None: ...


@pytest.mark.integration
def test_no_transaction_is_begun_while_a_commit_is_unanswered(cluster: Any) -> None:
    """If that one is sent again, it may arrive after the transaction and take its places back."""
    cluster.topic("in")
    cluster.topic("out")
    app = App(cluster.bootstrap, group="g")

    @app.on("in", exactly_once=True, publish="out")
    async def handle(value: str) -> str:
        return value

    with app.running():
        assert app.worker is not None
        intake = app.worker.intake
        assert isinstance(intake, WorkerIntake)
        cluster.until(lambda: intake.owned)
        [owned] = intake.owned.values()
        cluster.until(lambda: owned.source.committed_offset == 0 and not intake.commits.unanswered)
        intake.commits.unanswered = 1
        app.send("in", "x")
        cluster.until(lambda: owned.moves)
        turns = set[float]()
        cluster.until(lambda: turns.add(intake._polled_at) or len(turns) > 10)
        assert owned.moves and cluster.records("out") == []
        intake._told({})
        cluster.until(lambda: app.subscriptions[0].stats.handled == 1)
        assert [record.value for record in cluster.records("out")] == [b"x"]


@pytest.mark.integration
def test_a_partition_that_goes_leaves_when_its_results_are_written(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topic("in", partitions=2)
    cluster.topic("out")
    plug, release = threading.Event(), threading.Event()

    def worker_of() -> App:
        app = App(cluster.bootstrap, group="g")

        @app.on("in", exactly_once=True, publish="out")
        def handle(value: str) -> str:
            (plug if value == "plug" else release).wait(90)
            return value

        return app

    caplog.set_level("WARNING", logger="headrace.app")
    first, second = worker_of(), worker_of()
    with first.running():
        first.send("in", "plug", partition=0)
        assert first.worker is not None
        [runner], owned = first.worker.runners, first.worker.intake.owned
        cluster.until(lambda: runner.stats.in_flight == 1)
        # They wait behind it and are taken together; the one of the partition that will go is the
        # first of them, or it would not have begun by then and be left to the next owner.
        first.send("in", "0", partition=0)
        cluster.until(lambda: runner.waiting == 1)
        first.send("in", "1", partition=1)
        cluster.until(lambda: runner.waiting == 2)
        plug.set()
        cluster.until(lambda: [one.running for one in owned.values()] == [1, 1])
        with second.running():
            cluster.until(lambda: [one.closing for one in list(owned.values())] == [True, False])
            release.set()
            cluster.until(lambda: second.worker and len(second.worker.intake.owned) == 1)
    values = sorted(record.value for record in cluster.records("out"))
    assert values == [b"0", b"1", b"plug"]
    assert "still at work" not in caplog.text


@pytest.mark.integration
@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize(
    "poison",
    [Publish("out", "x" * 5_000), Publish("out", "x", key=5), Publish("out", "x", None, None, 7)],  # type: ignore[arg-type]
)
def test_a_result_that_no_transaction_takes_holds_up_no_other(
    cluster: Any, poison: Publish, dead_letters: bool
) -> None:
    """All of them go in one transaction, and a broker refuses them in batches."""
    cluster.topic("in")
    Admin(cluster.bootstrap).topics.create("out", settings={"max.message.bytes": "2000"})
    app = App(cluster.bootstrap, group="g")

    @app.on("in", exactly_once=True, dead_letters=dead_letters)
    def handle(value: str) -> Publish:
        return poison if value == "bad" else Publish("out", value)

    for value in ("a", "bad", "b"):
        app.send("in", value).result()
    with app.running():
        stats = app.subscriptions[0].stats
        cluster.until(lambda: stats.handled == 3)
        assert (stats.failed, stats.parked, stats.in_flight) == (1, int(dead_letters), 0)
    assert [record.value for record in cluster.records("out")] == [b"a", b"b"]
    if dead_letters:
        assert [record.value for record in cluster.records("in.g.dead")] == [b"bad"]
    assert cluster.committed("g")["in", 0] == 3


class Lossy:
    """A producer that does not hear how its first transaction ended."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.heard = False

    def commit(self, timeout_s: float) -> None:
        if not self.heard:
            self.heard = True
            self._real.commit(timeout_s)
            raise Fault(KafkaError(KafkaError._TIMED_OUT, "lost", False, True, False))
        self._real.commit(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_transaction_whose_end_is_not_heard_of_is_not_written_again(cluster: Any) -> None:
    cluster.topic("in")
    cluster.topic("out")
    app = App(cluster.bootstrap, group="g")

    @app.on("in", exactly_once=True, publish="out")
    async def handle(value: str) -> str:
        return value

    with app.running():
        assert app.worker is not None
        intake = app.worker.intake
        assert isinstance(intake, WorkerIntake)
        cluster.until(lambda: intake.owned)
        writer = intake.commits._ready_writer()
        lossy = Lossy(writer.calls)
        writer.calls = lossy  # type: ignore[assignment]
        app.send("in", "x")
        cluster.until(lambda: lossy.heard)
        app.send("in", "y")
        cluster.until(lambda: b"y" in [record.value for record in cluster.records("out")])
    assert [record.value for record in cluster.records("out")] == [b"x", b"y"]
    assert cluster.committed("g")["in", 0] == 2
