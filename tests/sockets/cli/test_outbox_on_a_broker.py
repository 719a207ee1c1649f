"""`headrace outbox` on SQLite and a broker: what a person at the terminal sees."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from headrace import Admin, Outbox
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.relay import Relay, Settings
from headrace.services.outbox.resumption import resume
from headrace.services.outbox.store import Store
from tests.sockets.cli.conftest import CommandLine


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.mark.integration
def test_from_tables_to_parked_rows(headrace: CommandLine, url: str) -> None:
    assert "There is no file" in headrace.failure("outbox", "status", url)
    assert not Path(url.removeprefix("sqlite:///")).exists()
    assert headrace.json("outbox", "init", url, "--shards", "2")["shards"] == 2
    assert "2 shards" in headrace("outbox", "init", url)
    assert "CREATE TABLE" in headrace("outbox", "init", url, "--print")
    assert "No relay is running" in headrace.notes("outbox", "status", url)

    Admin(headrace.bootstrap).topics.create("paid", partitions=1)
    outbox, engine = Outbox(), create_engine(url)
    with engine.begin() as db:
        outbox.send(db, "paid", "1", key="a")
        db.execute(
            text("INSERT INTO headrace_outbox (topic, message_key, headers) VALUES ('x y', 'k', 1)")
        )
    waiting = headrace.json("outbox", "status", url)["shards"]
    assert sum(each["waiting"] for each in waiting) == 2
    assert headrace.json("outbox", "status", url)["table_bytes"] > 0
    assert "The table takes" in headrace("outbox", "status", url)

    store = Store(engine_for(url))
    relay = Relay(
        store.engine, ClientSettings({"bootstrap.servers": headrace.bootstrap}), Settings()
    )
    thread = threading.Thread(target=relay.run)
    thread.start()
    deadline = time.monotonic() + 150
    while not store.parked() and time.monotonic() < deadline:
        time.sleep(0.01)
    [parked] = headrace.json("outbox", "list", url)
    assert (parked["topic"], parked["state"]) == ("x y", "poison")
    row_id = str(parked["id"])
    assert "not a valid topic name" in headrace("outbox", "show", url, row_id)
    assert "to be sent again" in headrace("outbox", "retry", url, row_id)
    while headrace.json("outbox", "list", url)[0]["state"] != "poison":  # in vain
        assert time.monotonic() < deadline
    assert "or give --all" in headrace.failure("outbox", "retry", url)
    assert "or give --all" in headrace.failure("outbox", "retry", url, row_id, "--all")
    assert headrace.json("outbox", "retry", url, "--topic", "another")["rows"] == 0
    assert headrace.json("outbox", "retry", url, "--all")["rows"] == 1
    assert "ROWS/S" in headrace("outbox", "status", url)
    assert "1 row deleted" in headrace("outbox", "discard", url, row_id, "--yes")
    assert "not parked" in headrace.failure("outbox", "discard", url, row_id, "--yes")
    assert "No row" in headrace.failure("outbox", "show", url, row_id)
    while not headrace("consume", "paid") and time.monotonic() < deadline:
        time.sleep(0.05)
    relay.stop()
    thread.join()
    assert headrace("consume", "paid").strip() == "1"


def test_misuse_is_told_in_a_sentence(headrace: CommandLine, url: str) -> None:
    assert "not the URL of a database" in headrace.failure("outbox", "status", "nonsense")
    assert "not oracle" in headrace.failure("outbox", "status", "oracle://x/y")
    assert "skip or wait" in headrace.failure("outbox", "relay", url, "--on-poison", "stop")
    assert "There is no file" in headrace.failure("outbox", "relay", url)
    Path(url.removeprefix("sqlite:///")).touch()
    for words in (["status"], ["list"], ["show", "1"], ["retry", "1"], ["discard", "1", "--yes"]):
        said = headrace.failure("outbox", words[0], url, *words[1:])
        assert "no outbox tables" in said and "headrace outbox init" in said
    assert "no outbox tables" in headrace.failure("outbox", "relay", url)
    for nothing in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        assert "name a file" in headrace.failure("outbox", "status", nothing)
    refused = headrace.failure("outbox", "status", "postgresql://u:secret@127.0.0.1:1/x")
    assert "The database refuses: connection failed" in refused and "secret" not in refused
    for wrong in ("postgresql://h:abc/x", "postgresql://user:secret@[::1/x"):
        said = headrace.failure("outbox", "status", wrong)
        assert "not the URL of a database" in said and "secret" not in said
    headrace("outbox", "init", url)
    assert "at least 100ms" in headrace.failure("outbox", "relay", url, "--lease", "0ms")
    assert "not HOST:PORT" in headrace.misuse(
        "outbox", "relay", url, "--metrics", "127.0.0.1:99999"
    )
    assert "shards, counted from 0" in headrace.failure(
        "outbox", "resume", url, "--shard", "9", "--after", "0"
    )


@pytest.mark.integration
def test_a_message_that_nobody_confirms_is_listed_with_an_alarm(
    headrace: CommandLine, url: str
) -> None:
    headrace("outbox", "init", url, "--shards", "1")
    Admin(headrace.bootstrap).topics.create("owed", partitions=1)
    outbox, engine = Outbox(), create_engine(url)
    with engine.begin() as db:
        outbox.send(db, "owed", "1", id="t-1", confirm_within="10ms")
    store = Store(engine_for(url))
    at = ClientSettings({"bootstrap.servers": headrace.bootstrap})
    relay = Relay(store.engine, at, Settings(resends=0))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        deadline = time.monotonic() + 150
        while headrace.json("outbox", "status", url)["unconfirmed"] == 0:
            assert time.monotonic() < deadline
            thread.join(0.3)  # commands run in this process: let the relay have its time too
        assert "1 message never confirmed" in headrace("outbox", "status", url)
        assert "headrace_outbox_messages_unconfirmed 1" in relay.metrics()
        [listed] = headrace.json("outbox", "list", url)
        assert (listed["state"], listed["message_id"]) == ("unconfirmed", "t-1")
        assert "sent once" in headrace("outbox", "show", url, str(listed["id"]))
        assert "1 row to be sent again" in headrace("outbox", "retry", url, "--topic", "owed")
        while not headrace.json("outbox", "list", url):
            assert time.monotonic() < deadline
            thread.join(0.3)
        assert "1 row deleted" in headrace("outbox", "discard", url, str(listed["id"]), "--yes")
    finally:
        relay.stop()
        thread.join()
    assert headrace("consume", "owed").count("1") == 2


def test_a_resumption_that_fails_gives_the_shard_back(url: str) -> None:
    Outbox(engine_for(url)).create(shards=1)
    store = Store(engine_for(url))
    nobody = ClientSettings({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.2)
    with pytest.raises(ClientError):
        resume(store, nobody, 0, after=0)
    assert store.take(0, "a relay", 1000) is True
