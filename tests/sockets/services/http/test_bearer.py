"""Bearer logins from end to end: signed tokens become users of the cluster, with their rights."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.client.admin.acls import Acl
from headrace.client.admin.admin import Admin
from headrace.client.connection import connection
from tests.sockets.server.a_secured_server import PLAIN_USERS, SecuredServer
from tests.sockets.services.http.served import PATIENCE_S, Answer, Served

JSON2 = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
KEY = ec.generate_private_key(ec.SECP256R1())


def bearer(**claims: Any) -> dict[str, str]:
    now = int(time.time())
    said = {"aud": "kafka", "iat": now, "exp": now + 3600} | claims
    token = jwt.encode(said, KEY, "ES256", headers={"kid": "k"})
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("data")
    with SecuredServer(
        folder,
        *("SASL_PLAINTEXT", "PLAINTEXT"),
        **{
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
            "sasl.oauthbearer.jwks.endpoint.url": keys_file(folder),
            "sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": "0",
        },
    ) as server:
        admin = Admin(f"127.0.0.1:{server.port('PLAINTEXT')}")
        for user in ("alice", "bob"):
            admin.topics.create(f"{user}s", partitions=1)
            for kind, name, pattern in (
                ("topic", f"{user}s", "literal"),
                ("group", f"{user}s", "literal"),
                ("topic", f"headrace-http-keys.{user}", "literal"),
                ("transactional_id", f"headrace-http-keys.{user}", "prefixed"),
            ):
                admin.acls.add([Acl(kind, name, pattern, f"User:{user}", "*", "all", "allow")])
        at = connection(
            bootstrap=f"127.0.0.1:{server.port('SASL_PLAINTEXT')}",
            overrides={"security.protocol": "sasl_plaintext"},
        )
        with Served(at, login=True, mechanism="PLAIN") as door:
            yield door


def keys_file(folder: Path) -> str:
    entry = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    keys = folder.parent / "keys.json"
    keys.write_text(json.dumps({"keys": [{**entry, "kid": "k", "alg": "ES256"}]}))
    return keys.as_uri()


def post(served: Served, topic: str, who: dict[str, str], value: int = 1) -> Answer:
    body = {"records": [{"value": value}]}
    return served.ask("POST", f"/topics/{topic}", body, kind=JSON2, headers=who)


@pytest.mark.integration
def test_a_token_writes_and_reads_with_its_users_rights(served: Served) -> None:
    alice, bob = bearer(sub="alice"), bearer(sub="bob")
    assert post(served, "alices", alice, 1).status == 200
    assert post(served, "bobs", bob, 2).status == 200
    assert post(served, "bobs", alice).status in (403, 404)
    assert served.ask("GET", "/topics", headers=alice).json() == ["alices"]
    assert served.ask("GET", "/topics", headers=bob).json() == ["bobs"]
    once = {"Idempotency-Key": "k"}
    first = post(served, "alices", alice | once, 3)
    assert first.status == 200, first
    again = post(served, "alices", bearer(sub="alice", jti="another token") | once, 3)
    assert again.body == first.body and again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.integration
def test_an_instance_is_its_users_under_every_token_of_theirs(served: Served) -> None:
    alice, later = bearer(sub="alice"), bearer(sub="alice", jti="2")
    assert post(served, "alices", alice, 1).status == 200
    new = {"name": "one", "format": "json", "auto.offset.reset": "earliest"}
    assert served.ask("POST", "/consumers/alices", new, kind=V2, headers=alice).status == 200
    at = "/consumers/alices/instances/one"
    topics = {"topics": ["alices"]}
    subscribed = served.ask("POST", f"{at}/subscription", topics, kind=V2, headers=alice)
    assert subscribed.status == 204
    records = f"{at}/records?timeout=20000"
    found = served.ask("GET", records, headers=later)
    assert found.status == 200 and found.json()[0]["value"] == 1, found
    assert served.ask("GET", records, headers=bearer(sub="bob")).status == 404
    assert served.ask("DELETE", at, headers=later).status == 204


@pytest.mark.integration
def test_a_token_streams(served: Served) -> None:
    alice = bearer(sub="alice")
    assert post(served, "alices", alice, 7).status == 200
    caller = http.client.HTTPConnection(*served.address, timeout=PATIENCE_S)
    caller.request("GET", "/topics/alices/stream?from=beginning", headers=alice)
    response = caller.getresponse()
    assert response.status == 200
    while b'"value":7' not in (line := response.readline()):
        assert line
    caller.close()


@pytest.mark.parametrize(
    "claims",
    [{"sub": "alice", "aud": "elsewhere"}, {"sub": "alice", "exp": 1000}, {"sub": 7}, {}],
    ids=["for another audience", "expired", "a number", "nobody"],
)
def test_other_tokens_do_not_open(served: Served, claims: dict[str, Any]) -> None:
    refused = served.ask("GET", "/topics", headers=bearer(**claims))
    assert refused.status == 401, refused
    assert "." in refused.json()["message"]


def test_a_token_that_names_nobody_is_refused_by_the_door(served: Served) -> None:
    """Else all who have such tokens would own each other's instances."""
    before = served.door.logins.refused_logins
    for token in ("opaque", "a.b.c"):
        refused = served.ask("GET", "/topics", headers={"Authorization": f"Bearer {token}"})
        assert refused.status == 401 and "claim" in refused.json()["message"]
    assert served.door.logins.refused_logins == before  # nobody was asked


@pytest.mark.integration
def test_a_token_ends_at_its_time(served: Served) -> None:
    """Also where the cluster was asked a moment ago, and for a stream that is under way."""
    alice = bearer(sub="alice", jti="ends")
    assert served.ask("GET", "/topics", headers=alice).status == 200
    caller = http.client.HTTPConnection(*served.address, timeout=PATIENCE_S)
    caller.request("GET", "/topics/alices/stream", headers=alice)
    response = caller.getresponse()
    assert response.status == 200
    real = served.door.logins.wall
    served.door.logins.wall = lambda: real() + 7200
    try:
        over = served.ask("GET", "/topics", headers=alice)
        assert over.status == 401 and "expired" in over.json()["message"], over
        assert post(served, "alices", bearer(sub="alice", jti="new")).status == 401
        assert post(served, "alices", alice).status == 401
        served.ask("GET", "/health")
        text = b""
        served.door.wake_streams()
        while line := response.readline():
            text += line
        assert b"event: failed" in text and b"40101" in text
    finally:
        served.door.logins.wall = real
        caller.close()
