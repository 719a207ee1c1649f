"""Logins on real sockets, by librdkafka: who gets in, who does not, and who is told what."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.node.process.settings.settings import CannotStart, load_settings
from headrace.wire.protocol.messages import describe_cluster
from tests.patience import until
from tests.sockets.server.a_secured_server import (
    PLAIN_USERS,
    Certificates,
    SecuredServer,
    ask,
    is_closed,
    receive,
)
from tests.unit.node.serving.conversation import frame

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
SASL_AUTHENTICATION_FAILED = 58


def settings(certificates: Certificates, **more: str) -> dict[str, str]:
    return (
        certificates.settings()
        | {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        }
        | more
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[SecuredServer]:
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
    folder = tmp_path_factory.mktemp("data")
    with SecuredServer(folder, *names, **settings(certificates)) as server:
        for mechanism in SCRAM:
            set_password(server, "alice", "wonder", mechanism)
        yield server


def set_password(server: SecuredServer, user: str, password: str, mechanism: str) -> None:
    info = ScramCredentialInfo(SCRAM[mechanism], 4096)
    wish = UserScramCredentialUpsertion(user, info, password.encode())
    alter(server, [wish])


def alter(server: SecuredServer, wishes: list[Any]) -> None:
    admin = AdminClient(server.client("PLAINTEXT"))
    for future in admin.alter_user_scram_credentials(wishes).values():
        future.result(60)


def client(
    served: SecuredServer,
    certificates: Certificates,
    mechanism: str,
    *,
    user: str = "alice",
    password: str = "wonder",
    listener: str = "SASL_SSL",
) -> dict[str, Any]:
    return served.client(listener) | {
        "security.protocol": listener.lower(),
        "ssl.ca.location": str(certificates.ca),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_opens(
    served: SecuredServer, certificates: Certificates, mechanism: str, listener: str
) -> None:
    producer = Producer(client(served, certificates, mechanism, listener=listener))
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
    assert "User:alice" in principals(served)


def principals(served: SecuredServer) -> set[str]:
    connections = list(served.server.loop.connections.values())
    return {str(connection.session.principal) for connection in connections}


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "wonder"), ("alice", "wonder2")]
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_wrong_one_does_not_and_the_client_is_told(
    served: SecuredServer, certificates: Certificates, mechanism: str, user: str, password: str
) -> None:
    failed = failures(served)
    errors: list[KafkaError] = []
    wrong = client(served, certificates, mechanism, user=user, password=password)
    producer = Producer(wrong | {"error_cb": errors.append})
    until(lambda: bool(producer.poll(0.1) or errors))
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert failures(served) > failed


def failures(served: SecuredServer) -> int:
    assert served.server.security is not None
    return served.server.security.logins.failed.total()


@pytest.mark.integration
def test_a_mechanism_that_is_not_offered(served: SecuredServer, certificates: Certificates) -> None:
    errors: list[KafkaError] = []
    wish = client(served, certificates, "OAUTHBEARER") | {
        "oauth_cb": lambda _: ("token", 4_000_000_000.0),
        "error_cb": errors.append,
    }
    del wish["sasl.username"], wish["sasl.password"]
    producer = Producer(wish)
    until(lambda: bool(producer.poll(0.1) or errors))
    assert "Unsupported SASL mechanism" in errors[0].str()


def test_our_own_admin_calls_log_in_too(served: SecuredServer, certificates: Certificates) -> None:
    for mechanism in MECHANISMS:
        at = ClientSettings(
            {name: str(value) for name, value in client(served, certificates, mechanism).items()}
        )
        at.settings["ssl.ca.location"] = str(certificates.ca)
        with Wire(at, ("localhost", served.port("SASL_SSL"))) as wire:
            answer = wire.ask(describe_cluster, describe_cluster.DescribeClusterRequest())
            # A client of a listener is told where that listener is.
            assert answer.brokers[0].port == served.port("SASL_SSL")


def test_strangers_may_not_even_ask_for_topics(served: SecuredServer) -> None:
    with served.connect("SASL_PLAINTEXT") as stranger:
        stranger.sendall(frame(3, 1, struct.pack(">i", -1)))
        assert is_closed(stranger)


def test_a_stranger_cannot_make_us_set_memory_aside(served: SecuredServer) -> None:
    with served.connect("SASL_PLAINTEXT") as stranger:
        stranger.sendall(struct.pack(">ihh", 512 * 1024 + 1, 36, 1))
        assert is_closed(stranger)


def test_other_clients_are_served_while_a_failed_login_waits(
    tmp_path: Path, certificates: Certificates
) -> None:
    slow = settings(certificates, **{"connection.failed.authentication.delay.ms": "60000"})
    with (
        SecuredServer(tmp_path, "SASL_PLAINTEXT", **slow) as server,
        server.connect("SASL_PLAINTEXT") as guesser,
    ):
        handshake(guesser, b"PLAIN")
        guesser.sendall(frame(36, 1, token(b"\0alice\0guess")))
        until(lambda: failures(server) == 1)
        with server.connect("SASL_PLAINTEXT") as honest:
            handshake(honest, b"PLAIN")
            assert ask(honest, frame(36, 1, token(b"\0alice\0wonder")))[4:6] == b"\0\0"
        guesser.settimeout(0.05)
        with pytest.raises(TimeoutError):
            guesser.recv(1)  # it has not been answered yet


def test_a_failed_login_hears_why_and_is_closed(served: SecuredServer) -> None:
    with served.connect("SASL_PLAINTEXT") as guesser:
        handshake(guesser, b"PLAIN")
        answer = ask(guesser, frame(36, 1, token(b"\0alice\0guess")))
        assert struct.unpack_from(">h", answer, 4) == (SASL_AUTHENTICATION_FAILED,)
        assert is_closed(guesser)


def handshake(connection: Any, mechanism: bytes, version: int = 1) -> None:
    body = struct.pack(">h", len(mechanism)) + mechanism
    assert ask(connection, frame(17, version, body))[4:6] == b"\0\0"


def token(said: bytes) -> bytes:
    return struct.pack(">i", len(said)) + said


def test_a_handshake_of_version_0_with_bare_tokens(served: SecuredServer) -> None:
    with served.connect("SASL_PLAINTEXT") as client:
        handshake(client, b"PLAIN", version=0)
        assert ask(client, token(b"\0alice\0wonder")) == b""
        client.sendall(frame(3, 1, struct.pack(">i", -1)))
        assert receive(client, 8)[4:] == struct.pack(">i", 1)


def test_expired_sessions_end_and_clients_that_log_in_again_go_on(
    tmp_path: Path, certificates: Certificates
) -> None:
    short = settings(certificates, **{"connections.max.reauth.ms": "300"})
    with SecuredServer(tmp_path, "SASL_PLAINTEXT", **short) as server:
        with server.connect("SASL_PLAINTEXT") as forgetful:
            handshake(forgetful, b"PLAIN")
            answer = ask(forgetful, frame(36, 1, token(b"\0alice\0wonder")))
            assert struct.unpack(">q", answer[-8:]) == (300,)
            asked = frame(3, 1, struct.pack(">i", -1))
            with pytest.raises(OSError):
                while True:
                    ask(forgetful, asked)
        assert server.server.security is not None
        assert server.server.security.logins.expired == 1
        # librdkafka logs in again before the time is up (KIP-368), or connects anew.
        settings_ = client(server, certificates, "PLAIN", listener="SASL_PLAINTEXT")
        producer = Producer(settings_)
        logins = server.server.security.logins.succeeded
        until(lambda: answers(producer) and logins["PLAIN"] >= 3)


def answers(producer: Producer) -> bool:
    try:
        return bool(producer.list_topics(timeout=10).brokers)
    except KafkaException:  # its time was up in the middle of the question
        return False


# ---- passwords change


def test_a_changed_password_counts_at_once_and_a_removed_user_is_gone(
    served: SecuredServer, certificates: Certificates
) -> None:
    def opens(password: str) -> bool:
        shown = client(served, certificates, "SCRAM-SHA-256", user="carol", password=password)
        at = ClientSettings({name: str(value) for name, value in shown.items()})
        try:
            Wire(at, ("localhost", served.port("SASL_SSL"))).__exit__(None, None, None)
        except Exception as refused:  # noqa: BLE001 - whatever it is, it is told
            assert "credentials" in str(refused)
            return False
        return True

    set_password(served, "carol", "first", "SCRAM-SHA-256")
    assert opens("first") and not opens("second")
    set_password(served, "carol", "second", "SCRAM-SHA-256")
    assert opens("second") and not opens("first")
    alter(served, [UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)])
    assert not opens("second")
    with pytest.raises(KafkaException) as missing:
        alter(served, [UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)])
    assert missing.value.args[0].name() == "RESOURCE_NOT_FOUND"


def test_passwords_outlive_a_restart(tmp_path: Path, certificates: Certificates) -> None:
    names = ("PLAINTEXT", "SASL_PLAINTEXT")
    for first in (True, False):
        with SecuredServer(tmp_path, *names, **settings(certificates)) as server:
            if first:
                set_password(server, "alice", "wonder", "SCRAM-SHA-512")
            shown = client(server, certificates, "SCRAM-SHA-512", listener="SASL_PLAINTEXT")
            assert AdminClient(shown).list_topics(timeout=60)


# ---- settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "sasl.enabled.mechanisms must be some of"),  # Kafka's default is GSSAPI
        ({"sasl.enabled.mechanisms": "PLAIN,MAGIC"}, "MAGIC cannot be used"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN needs users"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "evil.Module required;"},
            "must be one of org.apache.kafka.common.security.plain",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": 'x user_a="secret"'},
            "The sasl.jaas.config of PLAIN must end with ;",
        ),
    ],
)
def test_settings_that_make_no_sense_do_not_start(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    with pytest.raises(CannotStart) as refused:
        SecuredServer(tmp_path, "SASL_PLAINTEXT", **change)
    assert said in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "lets_in"),
    [
        ({"listeners": "SASL_SSL://0.0.0.0:9092"}, True),
        ({"listeners": "SSL://0.0.0.0:9092"}, False),
        ({"listeners": "SSL://0.0.0.0:9092", "ssl.client.auth": "required"}, True),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:9092"}, False),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, False),
    ],
)
def test_beyond_loopback_only_encrypted_and_with_a_name(
    settings: dict[str, str], lets_in: bool
) -> None:
    if lets_in:
        assert load_settings(overrides=settings).listeners
    else:
        with pytest.raises(CannotStart, match="--insecure"):
            load_settings(overrides=settings)
