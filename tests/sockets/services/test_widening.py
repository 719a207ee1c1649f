"""A backlog is drained through a wider topic: each record once, keys in order, and back again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from headrace import App, Retry
from headrace.app import Message
from headrace.app.names import dead_topic
from headrace.client.admin.groups import Groups, Move
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.services.backlog.drain import drain
from headrace.services.backlog.widening import CannotWiden, Step, Widening, WidenStatus
from headrace.services.redrive.letters import Selection as Letters
from headrace.services.redrive.service import DeadLetters
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration

GROUP = "billing"
KEYS = 9


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": broker.bootstrap})


def behind(cluster: ClientSettings, count: int) -> None:
    """A group that has read nothing of a topic with two partitions."""
    Topics(cluster).create("orders", partitions=2)
    send(cluster, range(count))
    moves = [Move("orders", p, None, 0, 0) for p in range(2)]
    Groups(cluster).move(GROUP, moves)


def send(cluster: ClientSettings, numbers: range) -> None:
    with Producer(cluster, settings=FILLS) as producer:
        for number in numbers:
            producer.send_one_way("orders", b"%d" % number, key=f"customer-{number % KEYS}")


class Handled:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.messages: list[Message] = []

    def app(self, broker: Broker, *, fails: tuple[int, ...] = ()) -> App:
        app = App(broker.bootstrap, group=GROUP, delay="off")

        @app.on("orders", order_by="key", retry=Retry(attempts=2, first="10ms", longest="10ms"))
        def bill(number: str, message: Message) -> None:
            if int(number) in fails:
                raise ValueError("no such customer")
            self.numbers.append(int(number))
            self.messages.append(message)

        return app

    def require_order(self) -> None:
        last: dict[int, int] = {}
        for number in self.numbers:
            assert last.get(number % KEYS, -1) < number
            last[number % KEYS] = number


class Running:
    """A widening in a thread of its own, as a person would have it in a terminal."""

    def __init__(self, widening: Widening, times: int = 3) -> None:
        self.seen: list[WidenStatus] = []
        plan = widening.plan("orders", GROUP, times)

        def run() -> None:
            for status in widening.run(plan, by="me"):
                self.seen.append(status)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait_for(self, step: Step) -> None:
        until(lambda: any(status.step is step for status in self.seen))

    def join(self) -> None:
        self._thread.join(90)
        assert self.seen[-1].step is Step.HANDED_BACK


def test_a_backlog_goes_through_the_wide_topic_and_back(
    broker: Broker, cluster: ClientSettings
) -> None:
    behind(cluster, 300)
    widening = Widening(cluster, few_left=20)
    running = Running(widening)
    until(lambda: bool(running.seen) and running.seen[-1].forwarded == 300)
    send(cluster, range(300, 340))  # the world goes on

    handled = Handled()
    app = handled.app(broker, fails=(77,))
    assert drain(app) == {"orders": "orders.billing.wide"}
    with app.running():
        until(lambda: len(handled.numbers) == 339)
        running.wait_for(Step.WAITING)
    running.join()

    handled.require_order()
    assert sorted(handled.numbers) == [n for n in range(340) if n != 77]
    # Under the place and id that they have in the source.
    assert {message.topic for message in handled.messages} == {"orders"}
    assert len({message.id for message in handled.messages}) == 339
    committed = Groups(cluster).committed(GROUP)
    assert sum(committed["orders", p] for p in range(2)) == 340
    left = [each.name for each in Topics(cluster).all() if ".wide" in each.name]
    assert left == []
    # Its dead letter is where people look, and can be sent again to the group.
    [(letter, _)] = DeadLetters(cluster).letters(dead_topic("orders", GROUP), Letters())
    assert (letter.origin_topic, letter.value) == ("orders", b"77")

    send(cluster, range(340, 350))
    after = Handled()
    with after.app(broker).running():
        until(lambda: len(after.numbers) == 10)
    assert sorted(after.numbers) == list(range(340, 350))


def test_a_widening_that_is_stopped_at_every_step_ends_as_well(
    broker: Broker, cluster: ClientSettings
) -> None:
    """After one, two or three looks, again and again, until the group is handed back."""
    behind(cluster, 120)
    handled = Handled()
    app: App | None = None
    steps: set[Step] = set()
    for looks in itertools.cycle((1, 2, 3)):
        widening = Widening(cluster, few_left=10)
        run = widening.run(widening.plan("orders", GROUP, 3), by="me")
        *_, status = itertools.islice(run, looks)
        run.close()
        steps.add(status.step)
        if status.step is Step.HANDED_BACK:
            break
        if status.forwarded == 120 and app is None and status.step is Step.FORWARDING:
            app = handled.app(broker)
            drain(app)
            app.start()
        if status.step is Step.WAITING and app is not None:
            app.stop()
    assert {Step.FORWARDING, Step.WAITING, Step.HANDED_BACK} <= steps
    handled.require_order()
    assert sorted(handled.numbers) == list(range(120))
    assert sum(Groups(cluster).committed(GROUP)["orders", p] for p in range(2)) == 120


def test_an_abort_loses_nothing(broker: Broker, cluster: ClientSettings) -> None:
    behind(cluster, 200)
    widening = Widening(cluster, few_left=0)
    running = widening.run(widening.plan("orders", GROUP, 3), by="me")
    until(lambda: next(running).forwarded == 200)
    running.close()
    handled = Handled()
    app = handled.app(broker)
    drain(app)
    with app.running():
        until(lambda: len(handled.numbers) > 50)
    widening.abort(widening.plan("orders", GROUP, 3), by="me")
    assert not any(".wide" in each.name for each in Topics(cluster).all())
    again = Handled()
    with again.app(broker).running():
        until(lambda: len({*handled.numbers, *again.numbers}) == 200)
    again.require_order()
    # What comes twice has the same id, so a handler with once= knows it.
    ids = {message.id for message in (*handled.messages, *again.messages)}
    assert len(ids) == 200


def test_what_cannot_be_widened_is_said(broker: Broker, cluster: ClientSettings) -> None:
    Topics(cluster).create("orders", partitions=2)
    widening = Widening(cluster)
    with pytest.raises(ClientError, match="no backlog"):
        widening.plan("orders", GROUP, 3)
    with pytest.raises(ClientError, match="There is no topic nosuch"):
        widening.plan("nosuch", GROUP, 3)
    send(cluster, range(10))
    handled = Handled()
    app = handled.app(broker)
    with pytest.raises(ValueError, match="Nothing is being widened"):
        drain(app)
    with app.running():
        until(lambda: len(handled.numbers) == 10)
        with pytest.raises(ClientError, match="active members"):
            widening.plan("orders", GROUP, 3)
    plan = widening.plan("orders", GROUP, 3)
    with pytest.raises(CannotWiden, match="is being widened"):
        widening.abort(plan, by="me")
