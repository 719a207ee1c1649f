"""A secured cluster in a real browser, over TLS: people log in by keyboard alone, two at once, each
sees their own, and the pages hold no fault for a screen reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import NARROW
from tests.console.served import Served
from tests.console.test_every_page import look_closely
from tests.sockets.console.test_logins_on_a_broker import PASSWORD, at, fill, plain_settings
from tests.sockets.server.a_secured_server import Certificates, SecuredServer

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    folder = tmp_path_factory.mktemp("node")
    with SecuredServer(folder, "SASL_PLAINTEXT", **plain_settings()) as node:
        fill(node)
        own = at(node, "sampler")
        with Served(own, login=True, tls=(certificates.server, None)) as served:
            yield served


def log_in(page: Page, name: str) -> None:
    """Without a mouse: the first field has the focus."""
    page.goto("/topics")
    # A page that has just come may not have given the focus yet: keys would go nowhere.
    expect(page.get_by_label("User", exact=True)).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    page.keyboard.type(PASSWORD)
    expect(page.get_by_label("User", exact=True)).to_have_value(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()


def test_two_people_log_in_by_keyboard_and_see_their_own(visit: Visit, secured: Served) -> None:
    ann, bob = (visit(secured, ignore_https_errors=True) for _ in range(2))
    ann.goto("/topics")
    look_closely(ann)
    log_in(ann, "ann")
    log_in(bob, "bob")
    expect(ann.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(bob.get_by_role("link", name="orders", exact=True)).to_have_count(0)
    for path in ("/", "/topics", "/groups", "/groups/one?name=billing", "/security", "/cluster"):
        ann.goto(path)
        look_closely(ann)
    expect(ann.get_by_text("secret-plans")).to_have_count(0)
    ann.get_by_role("button", name="Log out").click()
    expect(ann.get_by_role("heading", name="Log in")).to_be_visible()
    ann.go_back()
    ann.reload()
    expect(ann.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_wrong_password_is_said_and_the_form_stays(visit: Visit, secured: Served) -> None:
    page = visit(secured, ignore_https_errors=True)
    page.goto("/login")
    page.get_by_label("User").fill("carol")
    page.get_by_label("Password").fill("guess")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know this user")
    look_closely(page)


def test_an_administrator_gives_a_right_and_takes_it_away(visit: Visit, secured: Served) -> None:
    page = visit(secured, ignore_https_errors=True)
    log_in(page, "admin")
    page.goto("/security")
    for summary in ("Add a user", "Add an ACL", "Set a limit"):
        page.get_by_text(summary, exact=True).click()
    look_closely(page)
    page.set_viewport_size(NARROW)
    look_closely(page)
    page.get_by_label("Who", exact=True).fill("carol")
    page.locator("select[name=access]").select_option("consumer")
    page.get_by_label("named").fill("orders")
    page.get_by_role("button", name="Add the ACL").click()
    expect(page.get_by_role("status").first).to_contain_text("User:carol may read topic orders")
    expect(page.get_by_role("status").first).to_contain_text("acls add --principal carol")
    right = page.get_by_role("row").filter(has_text="may read topic orders")
    right.filter(has_text="carol").get_by_text("Remove …").click()
    look_closely(page)
    page.get_by_role("button", name="Remove this ACL").click()
    expect(page.get_by_role("status").first).to_contain_text("Removed: User:carol may read")


def test_a_password_that_is_made_up_is_seen_once(visit: Visit, secured: Served) -> None:
    page = visit(secured, ignore_https_errors=True)
    log_in(page, "admin")
    page.goto("/security")
    page.get_by_text("Add a user", exact=True).click()
    page.get_by_label("Name", exact=True).fill("dora")
    page.get_by_role("button", name="Add the user").click()
    expect(page.get_by_text("The password of dora, shown this once")).to_be_visible()
    page.reload()
    expect(page.get_by_text("The password of dora")).to_have_count(0)
    page.go_back()
    expect(page.get_by_text("The password of dora")).to_have_count(0)
