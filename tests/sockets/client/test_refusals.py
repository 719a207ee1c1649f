"""What a program hears when it may not come in, or knocks at the wrong door."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from headrace.client import (
    Admin,
    ClientError,
    Consumer,
    DeliveryFailed,
    LoginRefused,
    Producer,
    Unreachable,
)
from headrace.client.connection import ClientSettings
from headrace.client.login.bearer import bearer_token
from tests.sockets.nobody import nobody
from tests.sockets.server.a_secured_server import PLAIN_USERS, SecuredServer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientSettings]:
    """A broker where alice's password is `wonder`, and a guess at it."""
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    settings = {"sasl.enabled.mechanisms": "PLAIN", name: PLAIN_USERS}
    with SecuredServer(tmp_path_factory.mktemp("guarded"), "SASL_PLAINTEXT", **settings) as server:
        port = server.port("SASL_PLAINTEXT")
        guess = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "guess",
        }
        yield ClientSettings(guess, timeout_s=20, quiet=True)


WHAT_TO_DO = r"refuses the login: .*Check sasl\.mechanism, sasl\.username"


def test_a_reader_with_a_wrong_password_hears_so(guarded: ClientSettings) -> None:
    heard: list[Any] = []
    with Consumer(
        guarded, topics=["any"], group="any", settings={"error_cb": heard.append}
    ) as consumer:
        with pytest.raises(LoginRefused, match=WHAT_TO_DO) as caught:
            consumer.poll(60)
        assert caught.value.code == "_AUTHENTICATION"
        assert heard, "the program's own error_cb hears it too"


@pytest.mark.integration
def test_a_record_that_cannot_get_in_says_why(guarded: ClientSettings) -> None:
    producer: Producer = Producer(guarded, settings={"message.timeout.ms": 4000})
    with pytest.raises(DeliveryFailed, match=rf"delivery timeout.*{WHAT_TO_DO}"):
        producer.send_sync("any", b"x")
    producer.close()


@pytest.mark.integration
def test_a_transaction_that_cannot_get_in_says_why(guarded: ClientSettings) -> None:
    with (
        Producer(guarded, transactional_id="any") as producer,
        pytest.raises(LoginRefused, match=WHAT_TO_DO),
    ):
        producer.prepare_transactions()


@pytest.mark.integration
def test_an_administrator_who_cannot_get_in_hears_why(guarded: ClientSettings) -> None:
    with pytest.raises(LoginRefused, match=WHAT_TO_DO):
        Admin(guarded).topics.all()


@pytest.mark.integration
def test_a_port_where_somebody_else_listens_is_told_apart_from_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = {"bootstrap.servers": f"127.0.0.1:{other.getsockname()[1]}"}
        with pytest.raises(Unreachable, match="although the port is open.*right port"):
            Admin(ClientSettings(settings, timeout_s=2, quiet=True)).topics.all()


@pytest.mark.integration
def test_errors_know_whether_later_is_better() -> None:
    producer: Producer = Producer(nobody(), transactional_id="t", settings={"log_level": 0})
    producer.connection.timeout_s = 0.2
    with pytest.raises(Unreachable) as caught:
        producer.prepare_transactions()
    producer.close(timeout_s=0)
    assert caught.value.retriable


# ---- tokens


class Provider(BaseHTTPRequestHandler):
    """Gives a token to `shop` with the password `secret`."""

    def do_POST(self) -> None:  # its name in http.server
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers["Authorization"] == "Basic c2hvcDpzZWNyZXQ="
        self.send_response(200 if known else 401)
        self.end_headers()
        nonsense = b"scope=nonsense" in asked
        self.wfile.write(b"[]" if nonsense else b'{"access_token": "a-token"}')

    def log_message(self, *_: object) -> None:
        """Not to standard error."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()


def oidc(url: str, **more: str) -> ClientSettings:
    said = {"method": "oidc", "token.endpoint.url": url, "client.id": "shop"}
    said |= {"client.secret": "secret", "extensions": "a=1,b=2"}
    said |= {name.replace("_", "."): value for name, value in more.items()}
    return ClientSettings({f"sasl.oauthbearer.{name}": value for name, value in said.items()})


def test_a_token_comes_from_the_provider_or_from_the_program(provider: str) -> None:
    assert bearer_token(oidc(provider)) == ("a-token", {"a": "1", "b": "2"})
    own = ClientSettings(callbacks={"oauth_cb": lambda config: ("own", 0.0, "me", {"x": "y"})})
    assert bearer_token(own) == ("own", {"x": "y"})
    assert (
        bearer_token(ClientSettings(callbacks={"oauth_cb": lambda c: ("short", 0.0)}))[0] == "short"
    )


def test_a_token_that_does_not_come_is_one_sentence(provider: str, tmp_path: Path) -> None:
    with pytest.raises(LoginRefused, match=r"answers 401\. See sasl\.oauthbearer\.client\.id"):
        bearer_token(oidc(provider, client_secret="guess"))
    with pytest.raises(ClientError, match="is not a token"):
        bearer_token(oidc(provider, scope="nonsense"))
    with pytest.raises(ClientError, match="not an http"):
        bearer_token(oidc(tmp_path.as_uri()))
    with pytest.raises(ClientError, match="give oauth_cb="):
        bearer_token(ClientSettings({}))
