"""Transactions, outboxes, pipelines and security in the console, on a real broker, a real database
and the folder that pipelines leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.admin.acls import Acl
from headrace.client.admin.admin import Admin
from headrace.client.connection import ClientSettings, connection
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.outbox import Outbox
from headrace.pipelines.stream.folder import Folder
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.rows import Row
from headrace.services.outbox.store import Store
from headrace.testing import Broker
from tests.console.full_cluster import HOSTILE
from tests.console.served import Served, Visitor


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.db'}"
    engine = engine_for(url)
    outbox = Outbox(engine)
    outbox.create(2)
    with engine.begin() as db:
        outbox.send(db, "orders", "waits", key="k")
    engine.dispose()
    return url


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("pipelines")
    for name in ("counts", "broken", "damaged"):
        folder = Folder(data, name)
        folder.state.mkdir(parents=True)
        described = {"id": "1", "source": "orders", "sink": HOSTILE, "kind": "delta append"}
        (folder.state / "identity.json").write_text(json.dumps(described))
    done = {"batch": 7, "time": "2026-01-31T10:00:00Z", "rows_per_second": 1234.5, "behind": 42}
    Folder(data, "counts").keep_progress({**done, "rows_total": 99, "dead": 3})
    Folder(data, "broken").keep_failure(f"The table is gone {HOSTILE}", 1_769_900_000_000)
    (data / "state" / "damaged" / "identity.json").write_text("{")
    return data


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "headrace.audit": "topic",
    }
    with Broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def at(broker: Broker) -> ClientSettings:
    return connection(bootstrap=broker.bootstrap)


@pytest.fixture(scope="module")
def visitor(broker: Broker, database: str, pipelines: Path) -> Iterator[Visitor]:
    absent = "postgresql+psycopg://ann:p1anted@127.0.0.1:1/none"
    with Served(broker.bootstrap, outboxes=(database, absent), pipelines=pipelines) as served:
        yield served.visitor()


# ---- transactions


def test_an_open_transaction_is_shown_and_aborted_with_a_warning(
    visitor: Visitor, at: ClientSettings
) -> None:
    assert "No open transactions." in visitor.get("/transactions").said()
    Admin(at).topics.create("orders", partitions=1)
    with ExitStack() as until, Producer(at, transactional_id=f"shop {HOSTILE}") as producer:
        transaction = until.enter_context(producer.transaction())
        producer.send("orders", "half").result(60)
        page = visitor.get("/transactions")
        assert f"shop {HOSTILE}" in page.said() and "<script>doc" not in page.text
        assert "orders 0" in page.said() and "is fenced" in page.said()
        which = {"id": f"shop {HOSTILE}"}
        assert visitor.post("/transactions/abort", which).status == 400
        done = visitor.post("/transactions/abort", which | {"typed": "abort"})
        assert "Aborted the transaction of" in done.said()
        assert "headrace transactions abort" in done.said()
        again = visitor.post("/transactions/abort", which | {"typed": "abort"})
        assert again.status == 502 and "has no open transaction" in again.said()
        with pytest.raises(ClientError):
            until.close()
        assert transaction is not None
    gone = {"topic": "orders", "partition": "0", "start": "0", "typed": "abort"}
    assert visitor.post("/transactions/abort-hanging", gone).status == 502


# ---- the outbox


def test_an_outbox_tells_what_waits_and_what_was_parked(visitor: Visitor, database: str) -> None:
    page = visitor.get("/outbox")
    assert "Waiting 1 Parked 0" in page.said() and "No relay runs" in page.said()
    assert "postgresql+psycopg://127.0.0.1:1/none" in page.said(), "the other one is told of"
    assert "p1anted" not in page.text and "ann" not in page.said()
    engine = engine_for(database)
    rows = [Row(id, "orders", HOSTILE.encode(), b"v", None, None, 5) for id in (1001, 1002)]
    Store(engine).park(0, [(row, HOSTILE, False) for row in rows])
    engine.dispose()
    page = visitor.get("/outbox")
    assert "Parked 2" in page.said() and "<script>doc" not in page.text
    refused = visitor.post("/outbox", {"action": "discard", "id": "1001", "outbox": "0"})
    assert refused.status == 400 and "Type delete" in refused.said()
    assert visitor.post("/outbox", {"action": "retry", "outbox": "0"}).status == 400
    asked = {"action": "discard", "id": "1001", "outbox": "0", "typed": "delete"}
    assert "1 row deleted." in visitor.post("/outbox", asked).said()
    again = visitor.post("/outbox", {"action": "retry", "id": "1002", "outbox": "0"})
    assert "1 row will be sent again" in again.said()


# ---- pipelines


def test_pipelines_tell_their_state_their_lag_and_their_last_error(visitor: Visitor) -> None:
    said = visitor.get("/pipelines").said()
    assert "counts ended" in said and "42 99 3" in said
    assert "broken failed" in said and "The table is gone" in said
    assert "damaged cannot be read" in said
    assert "<script>doc" not in visitor.get("/pipelines").text


# ---- security


def test_rights_users_quotas_and_who_did_what_are_shown(
    visitor: Visitor, at: ClientSettings
) -> None:
    admin = Admin(at)
    admin.acls.add([Acl("topic", "orders", "literal", "User:ann", "*", "read", "allow")])
    admin.acls.add([Acl("topic", "pay", "prefixed", "User:eve", "10.0.0.7", "all", "deny")])
    admin.users.set_password("ann <b>", "secret", mechanism="SCRAM-SHA-512")
    admin.quotas.alter({"user": "ann"}, {"producer_byte_rate": 1024.0})
    page = visitor.get("/security")
    for part in (
        "User:ann may read topic orders",
        "User:eve denied may not do everything with topic names that begin with pay, from 10.0.0.7",
        "ann <b> SCRAM-SHA-512",
        "user ann bytes written, per second producer_byte_rate 1,024",
        "Aborted the transaction of",
        "not done Refused: Type delete",
        "(console)",
    ):
        assert part in page.said(), part
    assert "ann <b>" not in page.text and "secret" not in page.text
    assert "User:eve denied" not in visitor.get("/security?q=ann").said()
    assert "change User:ANONYMOUS CreateTopics done: orders" in page.said()
