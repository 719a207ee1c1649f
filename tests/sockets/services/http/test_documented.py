"""Every documented request of both dialects; and each route of ours is asked for once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.services.http.endpoints import ENDPOINTS
from headrace.services.http.routes import ROUTES
from headrace.testing import Broker
from tests.sockets.services.http import documented
from tests.sockets.services.http.served import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with Broker(settings=settings) as broker:
        documented.make_topics(broker.bootstrap)
        with Served(broker.bootstrap) as door:
            yield door


def test_topics_of_v2(served: Served) -> None:
    documented.topics_v2(served)


def test_produce_of_v2(served: Served) -> None:
    documented.produce_v2(served)


@pytest.mark.integration
def test_consumers_of_v2(served: Served) -> None:
    documented.consumers_v2(served)


def test_topics_and_records_of_v3(served: Served) -> None:
    documented.records_v3(served, documented.topics_v3(served))
    documented.partition_records(served)


def test_the_table_of_routes_is_whole(served: Served) -> None:
    assert {route.endpoint for route in ROUTES} == set(ENDPOINTS)
    paths = served.ask("GET", "/openapi.json").json()["paths"]
    assert {(r.path, r.method.lower()) for r in ROUTES} == {
        (path, method) for path, methods in paths.items() for method in methods
    }


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    page = served.ask("GET", "/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    text = page.body + served.ask("GET", "/page.js").body + served.ask("GET", "/page.css").body
    assert b"http://" not in text and b"https://" not in text
    assert served.ask("GET", "/health").json()["ok"] is True
    assert b"headrace_http_requests_total" in served.ask("GET", "/metrics").body
