"""How far a worker has come: what it commits while it is in the middle of its work."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace import App, Retry
from headrace.app.observation.metrics import AppMetrics
from headrace.app.retry import TryLater
from headrace.app.worker import intake
from headrace.app.worker.intake import WorkerIntake
from headrace.client.faults import Fault
from headrace.client.intake import Intake
from headrace.prometheus_text import render
from tests.sockets.picky_coordinator import Picky

pytestmark = pytest.mark.usefixtures("quick_producers")

KEYS, EACH, UNTIL = 40, 10, 200


def test_a_log_that_ends_before_the_committed_offset_is_read_from_its_beginning(
    cluster: Any,
) -> None:
    """A disk was lost, or somebody set the offset: what is written now must not be left out."""
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    seen: list[str] = []

    @app.on("orders")
    async def handle(value: str) -> None:
        seen.append(value)

    app.send("orders", "old").result()
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    group.commit(offsets=[TopicPartition("orders", 0, 100)], asynchronous=False)
    group.close()
    with app.running():
        cluster.until(lambda: seen == ["old"])
        app.send("orders", "new")
        cluster.until(lambda: seen == ["old", "new"])
    assert cluster.committed("g")["orders", 0] == 2


@pytest.mark.integration
def test_the_committed_offset_follows_with_many_keys_at_once(cluster: Any) -> None:
    """All of a key at once, key by key, would leave it at the first record of the last key."""
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    handled: list[str] = []
    may_end = [UNTIL]

    @app.on("orders", order_by="key", concurrency=4)
    async def slow(value: str) -> None:
        while len(handled) >= may_end[0]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.005)
        handled.append(value)

    for number in range(KEYS * EACH):
        app.send("orders", str(number), key=f"k{number % KEYS}")
    app.sender.producer.flush(60)
    with app.running():
        cluster.until(lambda: len(handled) >= UNTIL)
        # A few are in the hands of each slot, and the first ones were taken in longer runs.
        cluster.until(lambda: (cluster.committed("g").get(("orders", 0)) or 0) >= UNTIL - 80)
        may_end[0] = KEYS * EACH
        cluster.until(lambda: len(handled) == KEYS * EACH)


@pytest.mark.integration
def test_a_commit_that_failed_later_on_is_made_again(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def handle(value: str) -> None:
        pass

    with app.running():
        app.send("orders", "x")
        worker = app.worker
        assert worker is not None
        assert isinstance(worker.intake, WorkerIntake)
        cluster.until(lambda: worker.intake.owned)
        [owned] = worker.intake.owned.values()
        cluster.until(lambda: owned.source.committed_offset == 1)
        worker.intake._told({})  # the usual answer
        assert owned.source.committed_offset == 1
        refusal = Fault(KafkaError(KafkaError.NOT_COORDINATOR))
        worker.intake._told({owned.source.place: refusal})
        cluster.until(lambda: owned.source.committed_offset == 1)  # by another commit


@pytest.mark.integration
def test_a_commit_that_is_sent_again_never_undoes_a_later_one(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka says what was refused again after 100 ms and more; what comes last stands."""
    monkeypatch.setattr(intake, "COMMIT_EVERY_S", 0.02)
    group = Picky(monkeypatch, "orders")
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def handle(value: str) -> None:
        pass

    with app.running():
        app.send("orders", "x")
        cluster.until(lambda: group.refused)
        app.send("orders", "y")
        cluster.until(lambda: 2 in group.taken)
        worker = app.worker
        assert worker is not None
        assert isinstance(worker.intake, WorkerIntake)
        cluster.until(lambda: not worker.intake.commits.unanswered)
        assert group.taken[-1] == 2, group.taken
        assert cluster.committed("g")["orders", 0] == 2


class InARebalance:
    """A consumer whose group takes no offsets for a while."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.refusals = 3

    def commit(self, offsets: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise Fault(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self._real.commit(offsets)

    def commit_unawaited(self, offsets: Any) -> None:
        """Refused as well, and the worker ends before it hears of it."""

    def holds(self, offsets: Any) -> bool | None:
        return Intake.holds(cast(Intake, self), offsets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.integration
def test_a_worker_that_ends_in_a_rebalance_commits_when_it_is_over(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "LAST_ANSWER_S", 0.05)  # it would wait for the answer
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def handle(value: str) -> None:
        pass

    with app.running():
        worker = app.worker
        assert worker is not None
        assert isinstance(worker.intake, WorkerIntake)
        cluster.until(lambda: worker.intake.owned)
        [owned] = worker.intake.owned.values()
        commits = worker.intake.commits
        # Its first commit says where it begins; nobody would answer it any more.
        cluster.until(lambda: owned.source.committed_offset == 0 and not commits.unanswered)
        group: Any = InARebalance(worker.intake.member)
        commits._member = group
        app.send("orders", "x")
        cluster.until(lambda: owned.source.committed_offset == 1)  # it was sent
        assert cluster.committed("g").get(("orders", 0)) != 1
    assert group.refusals == 0
    assert cluster.committed("g")["orders", 0] == 1


class Undecided(InARebalance):
    """The same, and what nobody waits for is sent."""

    def commit_unawaited(self, offsets: Any) -> None:
        self._real.commit_unawaited(offsets)


def test_a_worker_that_stood_still_and_wakes_in_a_rebalance_keeps_its_partitions(
    cluster: Any,
) -> None:
    """The group does not say that they are another's, nor will it give them a second time."""
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def handle(value: str) -> None:
        pass

    with app.running():
        worker = app.worker
        assert worker is not None
        assert isinstance(worker.intake, WorkerIntake)
        intake = worker.intake
        cluster.until(lambda: intake.owned)
        group: Any = Undecided(intake.member)
        intake.commits._member = group

        def has_asked() -> bool:
            intake._polled_at -= 100  # as if it had not polled for so long
            return group.refusals < 3

        cluster.until(has_asked)
        cluster.until(lambda: not group.refusals)
        app.send("orders", "x")
        cluster.until(lambda: app.subscriptions[0].stats.handled == 1)


def test_what_is_away_is_counted_apart_and_shown_while_it_lasts(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g", clock=cluster.broker.clock.wall_ms)
    away = [True]

    @app.on("orders", retry=Retry(attempts=1), order_by="partition")
    async def handle(value: str) -> None:
        if away:
            raise TryLater("the stock system is down", after="1m")

    stats = app.subscriptions[0].stats
    labels = f'{{group="g",handler="{app.subscriptions[0].name}"}}'
    with app.running():
        app.send("orders", "x")
        app.send("orders", "y")
        cluster.until(lambda: stats.put_off == 1)
        text = _rendered(app)
        assert f"headrace_app_put_off_waiting{labels} 1\n" in text
        assert f"headrace_app_put_off_total{labels} 1\n" in text
        assert f"headrace_app_failed_total{labels} 0\n" in text
        cluster.until(lambda: f"headrace_app_waiting{labels} 2\n" in _rendered(app))
        away.clear()
        cluster.broker.advance(minutes=1, seconds=1)
        cluster.until(lambda: stats.handled == 2)
        assert f"headrace_app_put_off_waiting{labels} 0\n" in _rendered(app)
    assert cluster.records("orders.g.dead") == []


def _rendered(app: App) -> str:
    return render(AppMetrics(app).families())
