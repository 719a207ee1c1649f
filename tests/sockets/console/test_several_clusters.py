"""Two clusters in one console: each page, form, session and activity list is of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.connection import connection
from headrace.testing import Broker
from tests.console.served import Served, Visitor


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state = tmp_path_factory.mktemp("state")
    with Broker() as shop, Broker() as bank:
        Admin(connection(bootstrap=shop.bootstrap)).topics.create("orders", partitions=1)
        Admin(connection(bootstrap=bank.bootstrap)).topics.create("payments", partitions=1)
        others = (("bank", connection(bootstrap=bank.bootstrap)),)
        with Served(shop.bootstrap, name="shop", others=others, state=state) as served:
            yield served


@pytest.fixture
def visitor(console: Served) -> Visitor:
    return console.visitor()


def test_each_cluster_has_its_own_topics_and_a_switch_to_the_other(visitor: Visitor) -> None:
    shop, bank = visitor.get("/c/shop/topics"), visitor.get("/c/bank/topics")
    assert "orders" in shop.said() and "payments" not in shop.said()
    assert "payments" in bank.said() and "orders" not in bank.said()
    for page in (shop, bank):
        assert 'href="/c/shop/"' in page.text and 'href="/c/bank/"' in page.text
    assert 'href="/c/bank/topics/payments"' in bank.text
    assert 'data-base="/c/bank"' in bank.text


def test_every_address_of_a_page_stays_on_its_cluster(visitor: Visitor) -> None:
    for path in ("", "topics", "topics/payments", "groups", "delayed", "cluster", "security"):
        page = visitor.get(f"/c/bank/{path}")
        assert page.status == 200, page.said()
        for attribute in ("href", "action", "src", "data-connection", "data-rates", "data-tail"):
            for rest in page.text.split(f' {attribute}="')[1:]:
                assert rest.startswith(("/c/bank/", '/c/shop/"', "#", "?")), rest[:80]
    style = page.text.split('rel="stylesheet" href="')[1].partition('"')[0]
    assert visitor.get(style).status == 200


def test_addresses_without_a_cluster_lead_to_the_first(visitor: Visitor) -> None:
    for path, to in (("/", "/c/shop/"), ("/topics?q=a", "/c/shop/topics?q=a")):
        answer = visitor.get(path)
        assert (answer.status, answer.headers["Location"]) == (303, to)
    assert visitor.get("/c/bank").headers["Location"] == "/c/bank/"
    assert visitor.get("/health").status == 200
    for path in ("/c/nowhere/topics", "/c/bank/nowhere"):
        assert visitor.get(path).status == 404
    assert visitor.get("/", Host="evil.example").status == 421


def test_a_form_acts_on_its_own_cluster_only(visitor: Visitor, console: Served) -> None:
    token = visitor.get("/c/bank/create-topic").token()
    fields = {"name": "refunds", "partitions": "1", "replicas": "1"}
    refused = visitor.post("/c/shop/create-topic", fields, token=token)
    assert refused.status == 403 and "out of date" in refused.said()
    assert len(visitor.cookies) == 2, "each cluster has its own session"
    made = visitor.post("/c/bank/create-topic", fields, token=token)
    assert made.status == 200 and "Created refunds." in made.said()
    assert "refunds" not in visitor.get("/c/shop/topics").said()
    shop, bank = console.site.consoles
    assert [change.path for change in bank.activity] == ["/create-topic"]
    assert shop.activity == []


def test_a_console_of_one_cluster_has_no_switch(console: Served, tmp_path: Path) -> None:
    bootstrap = console.site.console.access.bootstrap
    with Served(bootstrap, state=tmp_path) as single:
        page = single.visitor().get("/topics")
    assert page.status == 200 and "/c/" not in page.text
