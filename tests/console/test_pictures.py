"""The pictures of the guide and the README: `make console PICTURES=docs/guide` renews them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from headrace.client.admin.group_lags import GroupLag, TopicLag
from headrace.client.connection import connection
from headrace.client.producer.producer import Producer
from headrace.pipelines.report.day import Day
from headrace.pipelines.report.day_report import drawn
from headrace.pipelines.report.drawings import DRAWINGS
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
                if name == "messages":
                    page.locator("[data-open]").nth(1).click()
                    expect(page.locator("tr[data-detail] .json-tree")).to_be_visible()
                page.screenshot(path=pictures / f"console-{name}.png")
            _show_lag(page, served)
            page.screenshot(path=pictures / "console-lag.png")
            page.goto("/life?topic=orders.billing.dead&partition=0&offset=1")
            page.screenshot(path=pictures / "console-life.png")
            _pass_an_hour(served)
            page.goto("/")
            _write_while_somebody_looks(page, broker)
            page.screenshot(path=pictures / "console-overview.png")
            page.close()  # before its stream is cut


def test_the_picture_of_a_report(chromium: Browser, pictures: Path, tmp_path: Path) -> None:
    """An example with made-up numbers; it must open without a network and without a fault."""
    faults: list[str] = []
    file = tmp_path / "day.html"
    file.write_text(_day_of_views(), "utf-8")
    context = chromium.new_context(viewport={"width": 1100, "height": 640}, offline=True)
    page = context.new_page()
    page.on("console", lambda said: faults.append(said.text))
    page.goto(file.as_uri())
    expect(page.get_by_role("img", name="Views and visitors by the minute")).to_be_visible()
    page.screenshot(path=pictures / "report-page-views.png")
    page.get_by_text("As numbers").first.click()
    expect(page.get_by_role("cell", name="23:59").first).to_be_visible()
    context.close()
    assert not faults


def _day_of_views() -> str:
    day = Day(date(2026, 11, 16), "UTC")
    midnight = datetime(2026, 11, 16, tzinfo=UTC)
    minutes = []
    for minute in range(1440):
        views = int(70 - 55 * math.cos(minute / 1440 * 2 * math.pi) + 7 * math.sin(minute * 1.7))
        numbers = {"m0": views, "m1": views * 2 // 3, "m2": views // 5}
        minutes.append({"at": midnight + timedelta(minutes=minute), **numbers})
    pages = [{"at": one["at"], "m0": 12} for one in minutes]
    total = sum(int(str(one["m0"])) for one in minutes)
    facts = [{"rows": 1440, "f0": total, "f1": 132, "f2": 88}]
    answers: Iterator[Any] = iter([facts, minutes, pages])
    drawing = DRAWINGS["page-views"]
    return drawn("page-views", "views-by-minute", drawing, day, lambda _: next(answers)).html


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


def _pass_an_hour(served: Served) -> None:
    """What the console notes on the way."""
    sampler = served.site.console.sampler
    assert sampler is not None
    now_s = int(sampler.wall_s())
    for back in range(240, -1, -1):
        written = 320 + 130 * math.sin(back / 23) + 25 * math.sin(back * 1.3)
        read = 300 + 120 * math.sin((back + 9) / 23)
        sampler.store.note_throughput(written, read, now_s - 15 * back)


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
