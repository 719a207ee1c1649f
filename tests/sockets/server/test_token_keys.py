"""Where the keys of tokens come from: a file, a provider, and what happens when they change."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.listeners import token_keys
from headrace.node.process.listeners.token_keys import TokenKeys
from headrace.node.process.settings.settings import CannotStart
from tests.patience import until
from tests.sockets.server.a_secured_server import SecuredServer

KEY = ec.generate_private_key(ec.SECP256R1())


def key_set(kid: str, key: Any = KEY) -> str:
    entry = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return json.dumps({"keys": [{**entry, "kid": kid}]})


class Provider(http.server.BaseHTTPRequestHandler):
    answer: bytes = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[tuple[type[Provider], str]]:
    class Own(Provider):
        pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Own, f"http://127.0.0.1:{server.server_address[1]}/keys"
    server.shutdown()
    server.server_close()
    thread.join()


def ids(keys: TokenKeys, wanted: str | None = None) -> list[str | None]:
    return [key.id for key in keys(wanted)]


def test_a_file_is_read_again_when_a_token_names_another_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_set("first"))
    now = 0.0
    keys = TokenKeys(path.as_uri(), 3_600_000, clock=lambda: now)
    path.write_text(key_set("second"))
    assert ids(keys, "first") == ["first"]
    assert ids(keys, "second") == ["first"], "not so soon"
    now = token_keys.LEAST_BETWEEN_S
    until(lambda: ids(keys, "second") == ["second"])


def test_keys_grow_old(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_set("first"))
    now = 0.0
    keys = TokenKeys(path.as_uri(), 60_000, clock=lambda: now)
    path.write_text(key_set("second"))
    now = 59.0
    assert ids(keys) == ["first"]
    now = 60.0
    until(lambda: ids(keys) == ["second"])


def test_what_cannot_be_read_later_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_set("first"))
    now = 0.0
    keys = TokenKeys(path.as_uri(), 10_000, clock=lambda: now)
    path.unlink()
    now = 10.0
    keys(None)
    until(lambda: "could not be read again" in caplog.text)
    assert ids(keys) == ["first"]


def test_a_provider(provider: tuple[type[Provider], str]) -> None:
    answers, url = provider
    answers.answer = key_set("theirs").encode()
    assert ids(TokenKeys(url, 60_000)) == ["theirs"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b""),
        (302, b""),
        (200, b"hello"),
        (200, b" " * (token_keys.LARGEST_ANSWER_BYTES + 1)),
    ],
)
def test_a_provider_without_keys(
    provider: tuple[type[Provider], str], status: int, answer: bytes
) -> None:
    answers, url = provider
    answers.status, answers.answer = status, answer
    with pytest.raises(BadValue, match="gives no keys"):
        TokenKeys(url, 60_000)


@pytest.mark.parametrize(
    "url", ["http://login.example/keys", "ftp://x/y", "keys.json", "file://other-host/keys", ""]
)
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(BadValue, match="https: or file:"):
        TokenKeys(url, 60_000)


# ---- on a node


def settings(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "keys.json"
    path.write_text(key_set("k"))
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def token(**change: Any) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 300} | change
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "k"})


def logs_in(server: SecuredServer, shown: str) -> bool:
    errors: list[Any] = []
    admin = AdminClient(
        server.client("SASL_PLAINTEXT")
        | {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (shown, time.time() + 300, "", {}),
            "error_cb": errors.append,
        }
    )
    got_in: list[bool] = []

    def tried() -> bool:
        try:
            got_in.append(bool(admin.list_topics(timeout=1).brokers))
        except Exception:  # noqa: BLE001 - the error says it
            admin.poll(0)
        return bool(got_in or errors)

    until(tried)
    return bool(got_in)


@pytest.mark.integration
def test_librdkafka_logs_in_with_a_token(tmp_path: Path) -> None:
    with SecuredServer(tmp_path / "data", "SASL_PLAINTEXT", **settings(tmp_path)) as server:
        assert logs_in(server, token())
        assert not logs_in(server, token(exp=int(time.time()) - 100))
        assert not logs_in(server, token(aud="another"))
        assert server.server.security is not None
        assert server.server.security.logins.failed["OAUTHBEARER"] >= 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "needs the keys"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"}, "gives no keys"),
        (
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
                'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
            },
            "without signatures",
        ),
    ],
)
def test_a_node_without_keys_does_not_start(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    with pytest.raises(CannotStart, match=said):
        SecuredServer(tmp_path / "data", "SASL_PLAINTEXT", **(settings(tmp_path) | change))
