"""Requests to other brokers: what waits for one goes with its next request."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from headrace.environment import Address, Peers
from headrace.node.broker.cluster.broker_requests import BrokerRequests
from headrace.node.metadata.image import Endpoint, MetadataImage
from tests.unit.node.replication.a_replica import a_broker

HERE = (Endpoint("INTERNAL", "host", 9094),)


class Asking:
    """A broker that knows brokers 1 (in service), 2 (fenced) and 3 (without the listener)."""

    inter_broker_listener = "INTERNAL"
    values: Mapping[str, Any] = {"request.timeout.ms": 30_000}

    def __init__(self) -> None:
        self.asked: list[tuple[Address, list[str], Any]] = []
        self.peers = cast(Peers, self)
        known = (a_broker(1, endpoints=HERE), a_broker(2, endpoints=HERE, fenced=True), a_broker(3))
        self.image = cast(MetadataImage, SimpleNamespace(brokers={each.id: each for each in known}))
        self.answers: list[tuple[list[str], Any]] = []
        self.requests: BrokerRequests[str] = BrokerRequests(
            self, "lane", None, list, lambda items, answer: self.answers.append((items, answer))
        )

    def ask(
        self, to: Address, lane: str, messages: Any, request: Any, answered: Any, **_: Any
    ) -> None:
        self.asked.append((to, request, answered))

    def send(self, to: int, *items: str) -> None:
        for item in items:
            self.requests.add(to, item)
        self.requests.send()


def test_what_comes_while_a_request_is_under_way_goes_with_the_next():
    broker = Asking()
    broker.send(1, "a")
    broker.send(1, "b")
    broker.send(1, "c")
    [(to, request, answered)] = broker.asked
    assert (to, request) == (Address("host", 9094, "INTERNAL"), ["a"])
    answered("well")
    assert broker.answers == [(["a"], "well")]
    assert [request for _, request, _ in broker.asked] == [["a"], ["b", "c"]]


def test_a_broker_that_cannot_be_reached_is_not_waited_for():
    broker = Asking()
    for to in (2, 3, 4):
        broker.send(to, "a")
    assert broker.answers == [(["a"], None)] * 3
    assert not broker.asked and not broker.requests.is_busy


def test_a_broker_that_goes_is_given_up_and_its_late_answer_does_not_count():
    broker = Asking()
    broker.send(1, "a")
    broker.image.brokers[1] = a_broker(1, endpoints=HERE, fenced=True)  # type: ignore[index]
    broker.requests.tick()
    assert broker.answers == [(["a"], None)]
    broker.asked[0][2]("late")
    assert len(broker.answers) == 1
