"""A group's backlog in the console: why it is behind, dry runs, going back and the way back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import ClientSettings, connection
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.console.served import Served, Visitor
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def at() -> Iterator[ClientSettings]:
    with Broker() as broker:
        cluster = connection(bootstrap=broker.bootstrap)
        Admin(cluster).topics.create("orders", partitions=2)
        with Producer(cluster, settings=FILLS) as producer:
            for number in range(400):
                producer.send_one_way("orders", b"%d" % number, partition=number % 2)
        moves = [Move("orders", 0, None, 120, 120), Move("orders", 1, None, 0, 0)]
        Groups(cluster).move("billing", moves)
        yield cluster


@pytest.fixture(scope="module")
def visitor(at: ClientSettings) -> Iterator[Visitor]:
    with Served(at.bootstrap) as served:
        yield served.visitor()


def committed(at: ClientSettings) -> list[int]:
    found = Groups(at).committed("billing")
    return [found["orders", p] for p in range(2)]


def test_a_backlog_is_told_with_its_cause_and_the_command(visitor: Visitor) -> None:
    page = visitor.get("/groups/backlog?name=billing").said()
    assert "No active members: group billing is not running" in page
    assert "280" in page
    assert "headrace backlog status billing" in page
    assert "Backlog and replay" in visitor.get("/groups/one?name=billing").said()


def test_a_widening_and_a_parking_are_planned_with_the_command(
    visitor: Visitor, at: ClientSettings
) -> None:
    page = visitor.get("/groups/backlog?name=billing&way=widen&topic=orders&times=3").said()
    assert "with 6 partitions instead of 2" in page
    assert "headrace backlog widen orders --group billing --times 3 --execute" in page
    page = visitor.get("/groups/backlog?name=billing&way=park&topic=orders").said()
    assert "Up to 280 records" in page
    assert "headrace backlog park orders --group billing --to parked --execute" in page
    assert committed(at) == [120, 0]
    assert "orders.billing.wide" not in Groups(at).cluster.topics


def test_a_group_goes_back_after_a_dry_run_and_is_put_where_it_was(
    visitor: Visitor, at: ClientSettings
) -> None:
    page = visitor.get("/groups/backlog?name=billing&way=replay&topic=orders&offset=20").said()
    assert "At most 100 records are read again" in page
    assert "headrace replay group billing --topic orders --from-offset 20 --execute" in page
    assert committed(at) == [120, 0]
    form = {"name": "billing", "topic": "orders", "offset": "20", "reason": "wrong prices"}
    page = visitor.post("/groups/replay", form).said()
    assert "reads at most 100 records" in page and "wrong prices" in page
    assert committed(at) == [20, 0]
    assert "120" in visitor.get("/groups/backlog?name=billing&way=undo").said()
    visitor.post("/groups/replay/undo", {"name": "billing"})
    assert committed(at) == [120, 0]


def test_what_cannot_be_read_or_done_is_said(visitor: Visitor) -> None:
    for address in (
        "/groups/backlog?name=billing&way=dance&topic=orders",
        "/groups/backlog?name=billing&way=replay&topic=orders",
        "/groups/backlog?name=billing&way=widen&topic=orders&times=1",
        "/groups/backlog?name=billing&way=park",
    ):
        assert visitor.get(address).status == 400
    assert visitor.get("/groups/backlog?name=nobody").status == 404
