"""What people do in the console, step by step in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from headrace.client.connection import connection
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.console.conftest import SLOWEST_MS
from tests.console.served import Served

Visit = Callable[..., Page]
expect.set_options(timeout=SLOWEST_MS)


def test_a_newcomer_sends_a_first_message_and_sees_it(visit: Visit, empty: Served) -> None:
    page = visit(empty)
    page.goto("/")
    page.get_by_label("Message", exact=True).fill("good morning")
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_role("status")).to_contain_text("Sent to hello")
    expect(page.get_by_role("cell", name="good morning")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Sent to hello")).to_have_count(0)
    expect(page.get_by_role("row")).to_have_count(2)  # a reload sends nothing again


def test_a_topic_is_made_used_and_deleted_with_the_keyboard_alone(
    visit: Visit, empty: Served
) -> None:
    page = visit(empty)
    page.goto("/create-topic")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # the breadcrumb
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    page.goto("/topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{empty.address}/topics?q=ord")  # what is empty is left out
    page.goto("/topics/orders")
    page.get_by_text("Grow, empty or delete").focus()
    page.keyboard.press("Enter")
    page.get_by_label("to delete it").focus()
    page.keyboard.type("order")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing was changed")).to_be_visible()
    page.goto("/topics/orders")
    page.get_by_text("Grow, empty or delete").press("Enter")
    page.get_by_label("to delete it").fill("orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Deleted orders")


def test_a_link_shows_somebody_else_the_same(visit: Visit, full: Served) -> None:
    one = visit(full)
    one.goto("/topics/orders/messages")
    one.get_by_label("Key contains").fill("ada")
    one.get_by_text("More", exact=True).click()
    one.get_by_label("Expression").fill("value.amount > 400")
    one.get_by_role("button", name="Show").click()
    expect(one.get_by_text("found among")).to_be_visible()
    other = visit(full)
    other.goto(one.url)
    rows = [page.get_by_role("row").all_inner_texts() for page in (one, other)]
    assert len(rows[0]) > 2 and rows[0] == rows[1]


def test_the_field_that_a_choice_needs_is_shown(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/topics/orders/messages")
    expect(page.get_by_label("Offset", exact=True)).to_be_hidden()
    page.locator("select[name=from]").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("40")
    page.locator("select[name=partition]").select_option("2")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("rowheader").first).to_have_text("40")


def test_two_people_watch_a_topic_live_as_text(visit: Visit, full: Served) -> None:
    pages = [visit(full), visit(full)]
    for page in pages:
        page.goto("/topics/payments/tail")
        expect(page.get_by_text("Live: 0 shown")).to_be_visible()
    with Producer(connection(bootstrap=full.site.console.access.bootstrap)) as producer:
        producer.send("payments", "<img src=x onerror=document.title='run'> paid", key="live")
    for page in pages:
        expect(page.get_by_role("row").nth(1)).to_contain_text("<img src=x")
        assert page.title() == "Live: payments · Headrace"
    pages[0].get_by_role("button", name="Pause").click()
    expect(pages[0].get_by_text("Paused")).to_be_visible()


def test_a_topic_that_is_written_to_appears_among_the_busiest(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/")
    expect(page.locator("[data-rates-total]")).to_contain_text("per second")
    with Producer(connection(bootstrap=full.site.console.access.bootstrap)) as producer:
        for number in range(500):
            producer.send("payments", f"again {number}")
    expect(page.locator("[data-rates-rows]")).to_contain_text("payments")


def test_a_group_is_put_back_after_a_look_at_what_would_happen(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/groups/one?name=reports")
    page.get_by_role("link", name="Reset").click()
    page.get_by_label("Reset to").select_option("shift")
    page.get_by_label("Messages (negative: back)").fill("-5")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_role("cell", name="reads 5 again").first).to_be_visible()
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_role("status")).to_contain_text("--shift-by=-5 --execute")


def test_letters_are_ticked_and_sent_again(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/dead-letters")
    page.get_by_role("link", name="LookupError").click()
    page.get_by_label("Letter 0/0").check()
    page.get_by_label("Reason").fill("the customer is back")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("status")).to_contain_text("1 letter sent again to the group")
    expect(page.get_by_label("Letter 0/0")).to_have_count(0)


def test_a_delayed_message_is_cancelled(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/delayed?id=tea-7")
    page.get_by_role("button", name="Cancel tea-7").click()
    expect(page.get_by_role("status")).to_contain_text("Cancelled: tea-7 will not be delivered.")


def test_a_theme_is_kept(visit: Visit, full: Served) -> None:
    page = visit(full, color_scheme="light")
    page.goto("/")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    switch = page.get_by_role("button", name="Theme")
    switch.click()  # from the system's to light, then to dark
    switch.click()
    expect(switch).to_have_text("Theme: dark")
    page.goto("/topics")
    assert page.evaluate(ground) != light


def test_what_stands_in_the_editor_is_sent_after_a_diff(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/dead-letters/orders.billing.dead/letter?at=0/2")
    page.get_by_text("Edit the value first").click()
    page.get_by_label("Value", exact=True).fill('{"order": "mended"}')
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_label("Changes")).to_contain_text('+ {"order": "mended"}')
    page.get_by_role("button", name="Send the changed value").click()
    expect(page.get_by_role("status")).to_contain_text("1 letter sent again to the group")
    page.goto("/topics/orders.billing.retry/messages")
    expect(page.get_by_role("cell", name='{"order": "mended"}')).to_be_visible()


def test_a_mistyped_filter_keeps_the_form(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/topics/orders/messages")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Expression").fill("value.amount >")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("at character 15")
    expect(page.get_by_label("Expression")).to_have_value("value.amount >")


def test_a_row_opens_in_place_and_its_json_folds(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/topics/orders/messages?n=25")
    row = page.locator("tr[data-message]").first
    row.locator("[data-open]").click()
    detail = page.locator("tr[data-detail]")
    expect(detail.locator(".json-tree .json-name").first).to_be_visible()
    expect(detail.locator(".json-tree .json-number").first).to_be_visible()
    detail.locator(".json-tree summary").first.click()
    expect(detail.locator(".json-tree .json-name").first).to_be_hidden()
    assert page.url.endswith("/topics/orders/messages?n=25")
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    expect(row.locator("[data-open]")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("tr[data-message]").nth(1).locator("+ tr[data-detail]")).to_be_visible()


def test_what_others_wrote_is_text_in_an_opened_row(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/topics/hostile/messages")
    for opener in page.locator("[data-open]").all():
        opener.click()
    expect(page.locator("tr[data-detail] [data-whole-message]").first).to_be_visible()
    expect(page.locator("tr[data-detail] img, tr[data-detail] script")).to_have_count(0)
    assert page.title() != "run"


def test_the_keyboard_reaches_search_and_list_from_every_page(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/cluster")
    page.keyboard.press("/")
    search = page.get_by_placeholder("Name contains")
    expect(search).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(search).not_to_be_focused()
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == first
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(first)


def test_a_value_wraps_on_a_phone(visit: Visit, full: Served) -> None:
    page = visit(full, viewport={"width": 400, "height": 800})
    page.goto("/topics/orders/messages?n=25")
    box = page.locator("tr[data-message] td.grow").first.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 400


def test_favourites_are_kept_by_the_browser(visit: Visit, full: Served) -> None:
    page = visit(full)
    page.goto("/topics")
    page.get_by_role("button", name="Favourite orders", exact=True).click()
    line = page.locator("[data-favourites]")
    expect(line).to_contain_text("orders")
    page.reload()
    line.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    page.goto("/topics")
    page.get_by_role("button", name="Favourite orders", exact=True).click()
    expect(line).to_be_hidden()


def test_the_last_hour_is_there_when_the_page_opens(visit: Visit, full: Served) -> None:
    sampler = full.site.console.sampler
    assert sampler is not None
    full.run(sampler.sample())  # opens the store of this cluster
    now_s = int(sampler.wall_s())
    for back in range(240, 0, -1):
        sampler.store.note_throughput(100 + back % 40, 90 + back % 25, now_s - 15 * back)
    sampler.store.note_throughput(120, 100, now_s)
    page = visit(full)
    page.goto("/")
    expect(page.get_by_role("img", name="Messages per second into all topics")).to_be_visible()
    expect(page.get_by_role("img", name="Messages per second read by all groups")).to_be_visible()


def test_the_dot_of_an_open_page_turns_red_when_the_broker_ends(visit: Visit) -> None:
    with Broker() as broker, Served(broker.bootstrap) as served:
        page = visit(served)
        page.goto("/pipelines")  # it asks the cluster nothing
        connection_of_page = page.locator("[data-connection]")
        expect(connection_of_page).to_contain_text("connected")
        broker.stop()
        expect(connection_of_page).to_contain_text("no broker answers")
        expect(connection_of_page.locator(".dot.bad")).to_be_visible()
