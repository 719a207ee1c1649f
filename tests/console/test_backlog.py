"""A backlog in a real browser: it is widened and handed back, parked and brought back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from headrace import App
from headrace.client.admin.groups import Groups, Move
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, connection
from headrace.client.producer.producer import Producer
from headrace.services.backlog.drain import drain
from headrace.testing import Broker
from tests.console.conftest import NARROW, SLOWEST_MS
from tests.console.served import Served
from tests.console.test_every_page import look_closely

Visit = Callable[..., Page]
expect.set_options(timeout=SLOWEST_MS)
LONGEST_S = 180
BEHIND = 2_000


def send(cluster: ClientSettings, numbers: range) -> None:
    with Producer(cluster) as producer:
        for number in numbers:
            producer.send_one_way("orders", b"%d" % number, key=f"customer-{number % 50}")


def behind(broker: Broker) -> ClientSettings:
    cluster = connection(bootstrap=broker.bootstrap)
    Topics(cluster).create("orders", partitions=2)
    send(cluster, range(BEHIND))
    Groups(cluster).move("billing", [Move("orders", p, None, 0, 0) for p in range(2)])
    return cluster


def app_of(broker: Broker, handled: Counter[int]) -> App:
    app = App(broker.bootstrap, group="billing", delay="off")

    @app.on("orders", order_by="key")
    def bill(number: str) -> None:
        handled[int(number)] += 1

    return app


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def planned(page: Page, way: str) -> None:
    page.goto("/groups/backlog?name=billing")
    page.locator("select[name=way]").select_option(way)


def show_plan(page: Page) -> None:
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()


def look_in_both(page: Page) -> None:
    """Light and wide, dark and narrow."""
    wide = page.viewport_size
    assert wide is not None
    look_closely(page)
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme="dark")
    look_closely(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(wide)


def card_of(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title)


def test_a_backlog_is_widened_drained_and_handed_back(visit: Visit, pictures: Path) -> None:
    with Broker() as broker:
        cluster = behind(broker)
        with Served(broker.bootstrap) as served:
            page = visit(served)
            planned(page, "widen")
            page.get_by_label("Partitions times").fill("5")
            show_plan(page)
            expect(page.get_by_text("with 10 partitions instead of 2")).to_be_visible()
            page.get_by_role("button", name="Widen").click()
            card = card_of(page, "Widening orders")
            expect(card.locator("[data-text=forwarded]")).to_have_text("2\u202f000")
            expect(card).to_contain_text("Start consumers of group billing on topic")
            look_in_both(page)
            page.screenshot(path=pictures / "console-widening.png")

            card.get_by_role("button", name="Stop").click()
            expect(card).to_contain_text("not run by this console")
            look_in_both(page)
            card.get_by_role("link", name="Abort").click()
            expect(page.get_by_role("button", name="Abort the widening")).to_be_visible()
            page.go_back()
            card.get_by_role("link", name="Go on").click()
            page.get_by_role("button", name="Go on").click()
            expect(card).to_contain_text("under way")

            handled: Counter[int] = Counter()
            app = app_of(broker, handled)
            drain(app)
            with app.running():
                expect(card).to_contain_text("Everything is drained: stop the consumers")
                look_in_both(page)
            expect(card).to_contain_text("handed back")  # the page is loaded anew by itself
            expect(card).to_contain_text("done")
            look_in_both(page)
            assert handled == Counter(range(BEHIND))
            committed = Groups(cluster).committed("billing")
            assert sum(committed["orders", p] for p in range(2)) == BEHIND
            assert "orders.billing.wide" not in Topics(cluster).cluster.topics


def test_a_backlog_is_parked_and_brought_back(visit: Visit, tmp_path: Path, pictures: Path) -> None:
    handled: Counter[int] = Counter()
    with Broker() as broker:
        cluster = connection(bootstrap=broker.bootstrap)
        Topics(cluster).create("orders", partitions=2)
        send(cluster, range(100))
        with app_of(broker, handled).running():  # makes the group's retry topic
            until(lambda: len(handled) == 100)
        send(cluster, range(100, BEHIND))
        with Served(broker.bootstrap, park_to=str(tmp_path / "parked")) as served:
            page = visit(served)
            planned(page, "park")
            show_plan(page)
            expect(page.get_by_text("Up to 1,900 records are copied into")).to_be_visible()
            look_in_both(page)
            page.get_by_label("Reason").fill("today's orders come first")
            page.get_by_role("button", name="Park").click()
            parked = card_of(page, "Parking the backlog of orders")
            expect(parked).to_contain_text("1,900 records parked")
            look_in_both(page)
            page.screenshot(path=pictures / "console-parking.png", full_page=True)

            send(cluster, range(BEHIND, BEHIND + 10))
            with app_of(broker, handled).running():
                until(lambda: len(handled) == 110)  # only what came after
                page.get_by_role("link", name="Bring back").click()
                page.get_by_label("Only the key").fill("customer-7")
                show_plan(page)
                page.get_by_role("button", name="Bring back").click()
                back = card_of(page, "Bringing back records of orders")
                expect(back).to_contain_text("done")
                expect(back.locator("[data-text=copied]")).to_have_text("38")
                until(lambda: len(handled) == 148)
                planned(page, "bring-back")
                page.get_by_label("Per second").fill("100000")
                show_plan(page)
                expect(page.get_by_text("1,862 records wait")).to_be_visible()
                page.get_by_role("button", name="Bring back").click()
                expect(back.locator("[data-text=copied]")).to_have_text("1\u202f862")
                expect(back).to_contain_text("done")
                look_in_both(page)
                until(lambda: len(handled) == BEHIND + 10)
    assert handled == Counter(range(BEHIND + 10))
