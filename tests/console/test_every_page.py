"""Every page in a real browser: nothing that others wrote runs, nothing is wider than a phone, and
a screen reader finds no fault (axe), light and dark.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.console.conftest import NARROW, WIDE
from tests.console.full_cluster import HOSTILE_GROUP
from tests.console.served import Served

LETTERS = "/dead-letters/orders.billing.dead"
FULL = {
    "overview": "/",
    "topics": "/topics",
    "all topics": "/topics?all=1",
    "create a topic": "/create-topic",
    "topic": "/topics/orders",
    "settings": "/topics/orders/settings?q=retention&edit=retention.ms",
    "messages": "/topics/orders/messages?n=25",
    "filtered messages": "/topics/orders/messages?where=value.amount+%3E+500&header=kind",
    "message": "/topics/orders/message?partition=0&offset=3",
    "hostile messages": "/topics/hostile/messages",
    "hostile message": "/topics/hostile/message?partition=0&offset=0",
    "bytes": "/topics/hostile/message?partition=0&offset=3",
    "live": "/topics/orders/tail",
    "send": "/topics/hostile/send?partition=0&offset=0",
    "groups": "/groups",
    "group": "/groups/one?name=billing",
    "hostile group": f"/groups/one?name={quote(HOSTILE_GROUP)}",
    "reset": "/groups/reset?name=billing&way=beginning",
    "backlog": "/groups/backlog?name=billing&way=replay&topic=orders&offset=0",
    "hostile backlog": f"/groups/backlog?name={quote(HOSTILE_GROUP)}",
    "hostile widening": f"/groups/backlog?name={quote(HOSTILE_GROUP)}&way=widen&topic=payments",
    "parking": "/groups/backlog?name=billing&way=park&topic=orders",
    "dead letters": "/dead-letters",
    "letters": LETTERS,
    "letter": f"{LETTERS}/letter?at=0/1",
    "delayed": "/delayed",
    "rejected": "/delayed/rejected",
    "who did what": f"{LETTERS}/done",
    "by path": "/topics/orders/messages?path=items[0].sku&keyas=hex&latest=1",
    "as something else": "/topics/hostile/message?partition=0&offset=0&as=text&keyas=hex",
    "one message": "/life?topic=orders.billing.dead&partition=0&offset=1",
    "several messages": "/life?topic=orders&key=ada",
    "transactions": "/transactions",
    "outbox": "/outbox",
    "pipelines": "/pipelines",
    "security": "/security",
    "cluster": "/cluster",
    "not there": "/topics/nowhere",
}
EMPTY = (
    "/", "/topics", "/groups", "/delayed", "/dead-letters", "/life", "/transactions", "/outbox",
    "/pipelines", "/security", "/cluster",
)  # fmt: skip
Visit = Callable[..., Page]


def look_closely(page: Page) -> None:
    assert page.title().endswith(" · Headrace"), "something that others wrote has run"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", FULL)
def test_a_page_of_a_full_cluster(visit: Visit, full: Served, name: str) -> None:
    page = visit(full, viewport=WIDE, color_scheme="light")
    page.goto(FULL[name])
    look_closely(page)
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme="dark")
    look_closely(page)


def test_pages_of_an_empty_cluster_teach(visit: Visit, empty: Served) -> None:
    page = visit(empty)
    for path in EMPTY:
        page.goto(path)
        look_closely(page)
    page.goto("/groups")
    assert page.get_by_text("Consumers that read a topic together form a group").is_visible()
