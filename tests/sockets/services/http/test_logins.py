"""Logins become the cluster's users: rights, keys, instances; TLS, and guesses."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.admin.acls import Acl
from headrace.client.admin.admin import Admin
from headrace.client.connection import connection
from headrace.services.http.limits import HttpLimits
from tests.sockets.server.a_secured_server import PLAIN_USERS, Certificates, SecuredServer
from tests.sockets.services.http.served import Answer, Served

JSON2 = "application/vnd.kafka.json.v2+json"
ONE = {"records": [{"value": 1}]}


def allowed(user: str, what: str, kind: str, name: str, pattern: str = "literal") -> Acl:
    return Acl(kind, name, pattern, f"User:{user}", "*", what, "allow")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
    }
    names = ("SASL_PLAINTEXT", "PLAINTEXT")
    with SecuredServer(tmp_path_factory.mktemp("data"), *names, **settings) as running:
        admin = Admin(f"127.0.0.1:{running.port('PLAINTEXT')}")
        for topic in ("alices", "bobs"):
            admin.topics.create(topic, partitions=1)
        for entry in (
            allowed("alice", "all", "topic", "alices"),
            allowed("alice", "all", "topic", "headrace-http-keys.alice"),
            allowed("alice", "all", "transactional_id", "headrace-http-keys.alice", "prefixed"),
            allowed("alice", "read", "group", "g"),
            allowed("bob", "all", "topic", "bobs"),
            allowed("bob", "read", "group", "g"),
        ):
            admin.acls.add([entry])
        yield running


@pytest.fixture(scope="module")
def served(server: SecuredServer) -> Iterator[Served]:
    at = connection(
        bootstrap=f"127.0.0.1:{server.port('SASL_PLAINTEXT')}",
        overrides={"security.protocol": "sasl_plaintext"},
    )
    with Served(at, login=True, mechanism="PLAIN", limits=HttpLimits(users=2)) as door:
        yield door


def basic(user: str, password: str) -> dict[str, str]:
    said = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {said}"}


ALICE, BOB = basic("alice", "wonder"), basic("bob", "builder")


def post(served: Served, topic: str, who: dict[str, str]) -> Answer:
    return served.ask("POST", f"/topics/{topic}", ONE, kind=JSON2, headers=who)


@pytest.mark.integration
def test_each_acts_with_rights_of_their_own(served: Served) -> None:
    assert post(served, "alices", ALICE).status == 200
    assert post(served, "bobs", BOB).status == 200
    refused = post(served, "bobs", ALICE)
    assert refused.status in (403, 404), refused
    assert served.ask("GET", "/topics", headers=ALICE).json() == ["alices"]
    assert served.ask("GET", "/topics", headers=BOB).json() == ["bobs"]


def test_nobody_gets_in_without_a_login_of_the_cluster(served: Served) -> None:
    asked = served.ask("GET", "/topics")
    assert asked.status == 401 and asked.headers["WWW-Authenticate"].startswith("Basic")
    assert asked.json()["error_code"] == 40101
    wrong = served.ask("GET", "/topics", headers=basic("alice", "guess"))
    assert wrong.status == 401 and "guess" not in wrong.body.decode()
    token = {"Authorization": "Bearer a.b.c"}  # which this cluster does not take
    assert served.ask("GET", "/topics", headers=token).status == 401
    assert served.ask("GET", "/health").status == 200


@pytest.mark.integration
def test_instances_and_keys_are_their_owners(served: Served) -> None:
    new = {"name": "mine", "format": "json", "auto.offset.reset": "earliest"}
    assert served.ask("POST", "/consumers/g", new, kind=JSON2, headers=ALICE).status == 200
    path = "/consumers/g/instances/mine"
    assert served.ask("GET", f"{path}/subscription", headers=BOB).status == 404
    assert served.ask("DELETE", path, headers=ALICE).status == 204
    once = ALICE | {"Idempotency-Key": "k"}
    first = post(served, "alices", once)
    assert first.status == 200, first
    assert post(served, "alices", once).body == first.body
    denied = post(served, "bobs", BOB | {"Idempotency-Key": "k"})
    assert denied.status == 403, denied


@pytest.mark.integration
def test_guessing_is_slowed_down(served: Served) -> None:
    answers = [
        served.ask("GET", "/topics", headers=basic("alice", f"guess {n}")).status for n in range(14)
    ]
    assert answers[0] == 401 and answers[-1] == 429
    assert post(served, "alices", ALICE).status == 200  # whoever is in stays in


def test_users_at_once_are_bounded_and_make_room(served: Served) -> None:
    assert len(served.door.logins.accesses) - 1 <= 2


def test_tls(server: SecuredServer, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    at = f"127.0.0.1:{server.port('PLAINTEXT')}"
    with Served(at, certificate=str(certificates.server)) as door:
        assert door.base.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificates.ca))
        caller = http.client.HTTPSConnection("localhost", door.address[1], context=trusted)
        caller.request("GET", "/topics")
        assert "alices" in json.loads(caller.getresponse().read())
        caller.close()
