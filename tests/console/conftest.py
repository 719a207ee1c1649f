"""One Chromium for all tests, a full cluster and an empty one, and pages that report faults."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from headrace.testing import Broker
from tests.console.full_cluster import fill
from tests.console.served import Served

WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 400, "height": 800}
SLOWEST_MS = 60_000  # of a step; the machine may be busy


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing: make browser installs it"
    with sync_playwright() as playwright:
        # Its sandbox wants rights that containers do not give; the pages are our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def full() -> Iterator[Served]:
    with Broker(delay=True) as broker:
        fill(broker.bootstrap, delayed=True)
        with Served(broker.bootstrap) as served:
            yield served


@pytest.fixture
def empty() -> Iterator[Served]:
    with Broker() as broker, Served(broker.bootstrap) as served:
        yield served


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """`visit(served)` opens a browser of its own on a console; faults of its scripts, and of the
    Content-Security-Policy, fail the test at its end."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(served: Served, **look: Any) -> Page:
        context = chromium.new_context(base_url=served.address, **{"viewport": WIDE, **look})
        context.set_default_timeout(SLOWEST_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: _note(said, faults))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


def _note(said: Any, faults: list[str]) -> None:
    # A page that is not found is told as an error too, and some tests ask for one.
    if said.type == "error" and "status of 4" not in said.text:
        faults.append(said.text)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make console PICTURES=docs/guide` renews those of the guide."""
    named = os.environ.get("PICTURES")
    return Path(named) if named else tmp_path_factory.mktemp("pictures")
