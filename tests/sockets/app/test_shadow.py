"""A shadow handles the past again and leaves the app as it is."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from headrace import App, Sql
from headrace.app import Message
from headrace.app.shadow_casting import ShadowRefused, cast_shadow
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.producer.producer import Producer
from headrace.services.replay.shadow_run import ShadowOutcome, ShadowRun
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration


def billing(broker: Broker, factor: int, handled: list[int], *, safe: bool = True) -> App:
    """Publishes a bill for each order; every third order costs `factor` times as much."""
    app = App(broker.bootstrap, group="billing", delay="off")

    @app.on("orders", publish="bills", replay_safe=safe)
    def bill(order: dict[str, int], message: Message) -> dict[str, int]:
        handled.append(order["n"])
        price = order["n"] * (factor if order["n"] % 3 == 0 else 1)
        return {"order": order["n"], "price": price}

    return app


def prepared(broker: Broker, count: int) -> None:
    topics = Topics(Producer(broker.bootstrap).connection)
    topics.create("orders", partitions=2)
    topics.create("bills", partitions=2)
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        for number in range(1, count + 1):
            producer.send("orders", b'{"n": %d}' % number, key=f"customer-{number}")


def committed(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    return Groups(Producer(broker.bootstrap).connection).committed(group)


def shadowed(app: App, name: str) -> ShadowOutcome:
    cast_shadow(app, name)
    run = ShadowRun(app)
    span = run.plan(None, None)
    for _ in run.run(span):
        pass
    return run.outcome(span, None)


MANY = pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])


@pytest.mark.parametrize("count", [30, MANY])
def test_the_same_handler_gives_the_same_results_and_touches_nothing_of_the_app(
    count: int,
) -> None:
    with Broker() as broker:
        prepared(broker, count)
        handled: list[int] = []
        with billing(broker, 2, handled).running():
            until(lambda: sum(committed(broker, "billing").values()) == count, within_s=900)
        offsets = committed(broker, "billing")

        outcome = shadowed(billing(broker, 2, handled), "monday")
        assert sorted(handled[count:]) == list(range(1, count + 1))
        [found] = outcome.comparisons
        assert (found.topic, found.same, found.is_equal) == ("bills", count, True)
        assert committed(broker, "billing") == offsets
        spans = Topics(Producer(broker.bootstrap).connection).spans(
            ["bills", "bills.shadow-monday"]
        )
        assert {t: sum(e for _, e in found.values()) for t, found in spans.items()} == {
            "bills": count,
            "bills.shadow-monday": count,
        }


def test_a_changed_handler_shows_what_it_would_have_done_otherwise() -> None:
    with Broker() as broker:
        prepared(broker, 12)
        with billing(broker, 2, []).running():
            until(lambda: sum(committed(broker, "billing").values()) == 12)
        outcome = shadowed(billing(broker, 5, []), "raise")
        [found] = outcome.comparisons
        assert (found.same, len(found.different), found.only_before, found.only_now) == (
            8,
            4,
            [],
            [],
        )


def test_once_keys_of_a_shadow_are_its_own() -> None:
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    with engine.begin() as db:
        db.execute(text("CREATE TABLE bills (n INTEGER)"))

    def app_of(broker: Broker) -> App:
        app = App(broker.bootstrap, group="once", delay="off")

        @app.on("orders", once=Sql(engine), replay_safe=True)
        def bill(order: dict[str, int], db) -> None:
            db.execute(text("INSERT INTO bills VALUES (:n)"), {"n": order["n"]})

        return app

    with Broker() as broker:
        prepared(broker, 5)
        with app_of(broker).running():
            until(lambda: sum(committed(broker, "once").values()) == 5)
        shadowed(app_of(broker), "again")
        shadowed(app_of(broker), "again")  # the same shadow goes on: nothing is left
    with engine.begin() as db:
        assert db.execute(text("SELECT count(*) FROM bills")).scalar_one() == 10


def test_handlers_that_are_not_declared_safe_do_not_run() -> None:
    with Broker() as broker:
        with pytest.raises(ShadowRefused, match="replay_safe=True"):
            cast_shadow(billing(broker, 2, [], safe=False), "monday")
        app = billing(broker, 2, [])

        @app.on("payments")
        def pay(payment: dict[str, int]) -> None: ...

        [left_out] = cast_shadow(app, "monday")
        assert left_out.endswith("pay")
        assert [each.topics for each in app.subscriptions] == [("orders",)]
        with pytest.raises(ShadowRefused, match="not a name for a shadow"):
            cast_shadow(billing(broker, 2, []), "../x")
