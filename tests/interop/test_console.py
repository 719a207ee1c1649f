"""The console on Apache Kafka: every page, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.full_cluster import fill
from tests.console.pages import PAGES
from tests.console.served import Served, Visitor
from tests.interop.brokers import ApacheNode

LETTERS = "/dead-letters/orders.billing.dead"


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with ApacheNode(tmp_path_factory.mktemp("apache")) as node:
        fill(node.bootstrap)
        with Served(node.bootstrap) as served:
            yield served.visitor()


def test_every_page_is_whole(visitor: Visitor) -> None:
    for path in PAGES:
        answer = visitor.get(path)
        assert answer.status == 200, (path, answer.said())
        assert "A part of this page is missing" not in answer.said(), path


def test_what_is_changed_here_is_changed_there(visitor: Visitor) -> None:
    assert "Created made." in visitor.post("/create-topic", {"name": "made"}).said()
    visitor.post("/topics/made/settings", {"name": "retention.ms", "value": "7200000"})
    assert "for 2 hours" in visitor.get("/topics/made").said()
    visitor.post("/topics/made/send", {"key": "k", "value": "from the console"})
    assert "from the console" in visitor.get("/topics/made/messages").said()
    visitor.post("/topics/made/empty", {"typed": "made"})
    assert "This topic is empty" in visitor.get("/topics/made/messages").said()
    assert "Deleted made" in visitor.post("/topics/made/delete", {"typed": "made"}).said()
    moved = visitor.post("/groups/reset", {"name": "billing", "way": "beginning"})
    assert "continues from there" in moved.said()
    sent = visitor.post(LETTERS, {"action": "redrive", "at": "0/0"})
    assert "1 letter sent again to the group that failed." in sent.said()


def test_a_tail_begins(visitor: Visitor) -> None:
    begun, quiet = visitor.frames("/topics/orders/tail/stream", 2)
    assert begun.startswith("event: begun") and quiet.startswith("event: quiet")
