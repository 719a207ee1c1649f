"""The examples in Django and FastAPI: a change of a request and its message are one."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from headrace import Admin, Outbox
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.outbox.engines import engine_for
from headrace.testing import Broker
from tests.services.servers import Postgres

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# A process of its own: Django is configured once per process.
REQUESTS = """
import json
from django.db import connection, transaction
from django.test import Client
import payment
from headrace.outbox import Outbox, OutboxError
from headrace.outbox.django import send
from headrace.outbox.django.models import OutboxRow

payment.open_accounts("ada", "bob")
client, said = Client(), {}
said["codes"] = [
    client.post(f"/save/{name}/{amount}").status_code
    for name, amount in [("ada", 100), ("bob", 5000), ("ada", 50), ("eve", 1), ("bob", 7)]
]
try:
    with transaction.atomic():
        payment.Account.objects.update(balance=0)
        send("transfers", {"account": "all", "amount": 1}, key="ada")
        raise RuntimeError
except RuntimeError:
    pass
with transaction.atomic():
    try:
        with transaction.atomic():  # a savepoint
            send("transfers", "rolled back", key="ada")
            raise RuntimeError
    except RuntimeError:
        pass
    Outbox().send(connection, "transfers", {"account": "bob", "amount": 0}, key="bob")
try:
    send("transfers", "x")
except OutboxError as refusal:
    said["refusal"] = str(refusal)
said["rows"] = OutboxRow.objects.count()
said["balances"] = dict(payment.Account.objects.values_list("name", "balance"))
print(json.dumps(said))
"""


def records(bootstrap: str) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    reader = RecordReader(ClientSettings(settings), "transfers")
    try:
        return [json.loads(record.value or b"") for record in reader.records()]
    finally:
        reader.close()


def until_told(bootstrap: str, count: int) -> list[tuple[str, int]]:
    deadline = time.monotonic() + 400
    while len(found := records(bootstrap)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return sorted((each["account"], each["amount"]) for each in found)


@pytest.fixture
def bootstrap(headrace_broker: Broker) -> str:
    topics = Admin(headrace_broker.bootstrap).topics
    if "transfers" in {topic.name for topic in topics.all()}:
        topics.delete("transfers")
    topics.create("transfers", partitions=1)
    return headrace_broker.bootstrap


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_with_django_atomic_a_message_is_written_or_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, bootstrap: str, kind: str
) -> None:
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES / "transfer-django")}
    url = f"sqlite:///{tmp_path / 'payment.db'}"
    if kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        admin = create_engine(server.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as db:
            db.execute(text("DROP DATABASE IF EXISTS django WITH (FORCE)"))
            db.execute(text("CREATE DATABASE django"))
        admin.dispose()
        url = server.url.rpartition("/")[0] + "/django"
        environment |= {"PGDATABASE": "django", "PGHOST": "127.0.0.1", "PGUSER": "headrace"}
        environment |= {"PGPORT": str(server.port)}
    done = subprocess.run(
        [sys.executable, "-c", REQUESTS], cwd=tmp_path, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["codes"] == [204, 409, 204, 409, 204]
    assert said["balances"] == {"ada": 850, "bob": 993}
    assert said["rows"] == 4
    assert "inside of transaction.atomic()" in said["refusal"]
    engine = engine_for(url)
    with Outbox(engine, bootstrap).relaying():
        told = until_told(bootstrap, 4)
    engine.dispose()
    assert told == [("ada", 50), ("ada", 100), ("bob", 0), ("bob", 7)]


def test_with_fastapi_the_relay_runs_beside_the_service(
    tmp_path: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYMENT_DB", f"sqlite+aiosqlite:///{tmp_path / 'payment.db'}")
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
    found = importlib.util.spec_from_file_location(
        "payment_api", EXAMPLES / "transfer-fastapi" / "payment.py"
    )
    assert found is not None and found.loader is not None
    payment = importlib.util.module_from_spec(found)
    found.loader.exec_module(payment)

    async def requests() -> tuple[list[int], list[tuple[str, int]]]:
        transport = httpx.ASGITransport(payment.api)
        async with (
            payment.lifespan(payment.api),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            paths = ["/open/ada", "/save/ada/100", "/save/ada/5000", "/save/ada/50", "/save/eve/1"]
            codes = [(await client.post(each)).status_code for each in paths]
            return codes, await asyncio.to_thread(until_told, bootstrap, 2)

    codes, told = asyncio.run(requests())
    assert codes == [201, 204, 409, 204, 409]
    assert told == [("ada", 50), ("ada", 100)]
