"""The pictures of the guide and the README: `make console PICTURES=docs/guide` renews them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from headrace.client.connection import connection
from headrace.client.group_lags import GroupLag, TopicLag
from headrace.client.producer import Producer
from headrace.testing import Broker
from tests.console.full_cluster import fill
from tests.console.served import Served

Visit = Callable[..., Page]
PAGES = {
    "messages": "/topics/orders/messages?n=25",
    "dead-letters": "/dead-letters/orders.billing.dead",
}
# Steps of the line that the overview draws; a run that keeps no picture needs one.
STEPS = 14 if os.environ.get("PICTURES") else 1


def test_the_pictures_of_the_guide(visit: Visit, pictures: Path) -> None:
    with Broker(delay=True) as broker:
        fill(broker.bootstrap, delayed=True, hostile=False)
        with Served(broker.bootstrap) as served:
            page = visit(served, viewport={"width": 1200, "height": 760})
            for name, path in PAGES.items():
                page.goto(path)
                page.screenshot(path=pictures / f"console-{name}.png")
            _show_lag(page, served)
            page.screenshot(path=pictures / "console-lag.png")
            page.goto("/life?topic=orders.billing.dead&partition=0&offset=1")
            page.screenshot(path=pictures / "console-life.png")
            page.goto("/")
            _write_while_somebody_looks(page, broker)
            page.screenshot(path=pictures / "console-overview.png")
            page.close()  # before its stream is cut


def _show_lag(page: Page, served: Served) -> None:
    """A quarter of an hour of samples, as a busy group leaves them."""
    sampler = served.site.console.sampler
    assert sampler is not None
    served.run(sampler.sample())  # opens the store of this cluster
    now_s = int(sampler.wall_s())
    for back in range(60, 0, -1):
        lag = int(400 + 300 * math.sin(back / 7) + back * 6)
        read = 100_000 - back * 300
        seen = GroupLag({"orders": TopicLag(lag, read, read + lag)})
        sampler.store.note({"billing": seen}, now_s - 15 * back)
    page.goto("/groups/one?name=billing&range=15m")
    expect(page.get_by_role("img", name="Messages not read yet")).to_be_visible()


def _write_while_somebody_looks(page: Page, broker: Broker) -> None:
    total, line = page.locator("[data-rates-total]"), page.locator("[data-rates-line]")
    expect(total).to_contain_text("per second")
    with Producer(connection(bootstrap=broker.bootstrap)) as producer:
        for step in range(STEPS):
            before = line.get_attribute("points") or ""
            for number in range(200 + 150 * (step % 5) + 40 * step):
                producer.send("orders", f'{{"order": {number}}}', key=str(number % 50))
            for number in range(90 + 30 * (step % 3)):
                producer.send("payments", f"paid {number}", key=str(number))
            expect(line).not_to_have_attribute("points", before)
    expect(page.locator("[data-rates-rows]")).to_contain_text("orders")
