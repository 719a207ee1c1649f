"""TLS on real sockets: who gets in, what passes, and what does not hold others up."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.node.process.listeners import newcomers, tls, tls_context
from headrace.node.process.listeners.tls_context import openssl_name
from headrace.node.process.settings.settings import CannotStart
from headrace.node.serving.authentication.certificate_names import (
    MalformedCertificate,
    alternative_names_of,
)
from tests.patience import until
from tests.sockets.server.a_secured_server import LASTS, Certificates, SecuredServer, ask, is_closed
from tests.unit.node.serving.conversation import frame

API_VERSIONS = 18
ASK_VERSIONS = frame(API_VERSIONS, 0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[SecuredServer]:
    """PLAINTEXT, TLS, TLS with a certificate, and TLS 1.2 with one suite, side by side."""
    settings = certificates.settings() | {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,MAYBE:SSL,OLDER:SSL"
        ),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.maybe.ssl.client.auth": "requested",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=shop$/$1/,DEFAULT",
        "listener.name.older.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.older.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    }
    names = ("PLAINTEXT", "SSL", "MUTUAL", "MAYBE", "OLDER")
    with SecuredServer(tmp_path_factory.mktemp("data"), *names, **settings) as server:
        yield server


def reasons(failures: pytest.ExceptionInfo[OSError]) -> str:
    return str(failures.value)


def test_requests_and_answers_pass(served: SecuredServer, certificates: Certificates) -> None:
    with served.connect("SSL", certificates.context()) as client:
        assert isinstance(client, ssl.SSLSocket) and client.version() == "TLSv1.3"
        assert ask(client, ASK_VERSIONS)[:6] == struct.pack(">ih", 1, 0)
        assert ask(client, ASK_VERSIONS)[:6] == struct.pack(">ih", 1, 0)


def test_a_request_may_come_byte_by_byte(served: SecuredServer, certificates: Certificates) -> None:
    with served.connect("SSL", certificates.context()) as client:
        for byte in ASK_VERSIONS[:-1]:
            client.send(bytes([byte]))
        assert ask(client, ASK_VERSIONS[-1:])[:4] == struct.pack(">i", 1)


@pytest.mark.parametrize("size", [100, 20_000, 300_000, 900_000, 3_000_000])
def test_records_of_every_size_come_back_as_they_were(
    served: SecuredServer, certificates: Certificates, size: int
) -> None:
    """Through frames in the shared buffer, in buffers of their own, and in memory of their own."""
    value = os.urandom(size)
    topic = f"sizes-{size}"
    tls_settings = {"security.protocol": "ssl", "ssl.ca.location": str(certificates.ca)}
    settings = served.client("SSL") | tls_settings
    limits = {"message.max.bytes": 10_000_000}
    producer = Producer(settings | limits)
    served_by_broker = {"max.message.bytes": "10000000"}
    create(served, topic, served_by_broker)
    for _ in range(3):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    fetched = {"group.id": "g", "fetch.message.max.bytes": 10_000_000}
    consumer = Consumer(settings | fetched)
    consumer.assign([TopicPartition(topic, 0, 0)])
    for _ in range(3):
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        assert message.value() == value
    consumer.close()


def create(served: SecuredServer, topic: str, config: dict[str, str]) -> None:
    from confluent_kafka.admin import NewTopic

    admin = AdminClient(served.client("PLAINTEXT"))
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        future.result(60)


def test_several_large_requests_in_one_go(
    served: SecuredServer, certificates: Certificates
) -> None:
    """The end of one and the beginning of the next lie in one record of TLS."""
    filler = frame(API_VERSIONS, 0, client_id=b"x" * 30_000)
    with served.connect("SSL", certificates.context()) as client:
        client.sendall(b"".join([filler, frame(API_VERSIONS, 0, correlation_id=7)] * 10))
        for expected in [1, 7] * 10:
            assert ask(client, b"")[:4] == struct.pack(">i", expected)


# ---- who gets in


def test_a_client_without_a_certificate_is_anonymous_or_refused(
    served: SecuredServer, certificates: Certificates
) -> None:
    with served.connect("MAYBE", certificates.context()) as client:
        ask(client, ASK_VERSIONS)
    with pytest.raises(OSError), served.connect("MUTUAL", certificates.context()) as client:
        ask(client, ASK_VERSIONS)


@pytest.mark.parametrize(
    ("listener", "user"), [("MUTUAL", "User:alice"), ("MAYBE", "User:CN=alice,O=shop")]
)
def test_a_certificate_names_the_user(
    served: SecuredServer, certificates: Certificates, listener: str, user: str
) -> None:
    context = certificates.context(certificates.client("alice"))
    with served.connect(listener, context) as client:
        ask(client, ASK_VERSIONS)
        assert user in principals(served)


def principals(served: SecuredServer) -> set[str]:
    connections = list(served.server.loop.connections.values())
    return {str(connection.session.principal) for connection in connections}


@pytest.mark.parametrize("listener", ["MUTUAL", "MAYBE"])
def test_a_foreign_certificate_is_refused(
    served: SecuredServer, certificates: Certificates, listener: str
) -> None:
    failed = served.server.security.handshakes.failed
    context = certificates.context(certificates.stranger("mallory"))
    with pytest.raises(OSError), served.connect(listener, context) as client:
        ask(client, ASK_VERSIONS)
    until(lambda: served.server.security.handshakes.failed == failed + 1)


def test_versions_and_suites_are_those_that_are_allowed(
    served: SecuredServer, certificates: Certificates
) -> None:
    with served.connect("OLDER", certificates.context()) as client:
        assert isinstance(client, ssl.SSLSocket)
        assert client.version() == "TLSv1.2"
        cipher = client.cipher()
        assert cipher is not None and cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    newer = certificates.context()
    newer.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(OSError):
        served.connect("OLDER", newer)


def test_librdkafka_says_why_it_is_not_let_in(
    served: SecuredServer, certificates: Certificates
) -> None:
    errors: list[KafkaError] = []
    settings = served.client("SSL", security_protocol="ssl") | {"error_cb": errors.append}
    producer = Producer(settings)  # it does not trust our authority
    until(lambda: bool(producer.poll(0.1) or errors))
    assert "certificate verify failed" in errors[0].str()


def test_what_is_not_tls_at_all_is_closed(
    served: SecuredServer, caplog: pytest.LogCaptureFixture
) -> None:
    with served.connect("SSL") as client:
        client.sendall(ASK_VERSIONS)
        assert is_closed(client)
    until(lambda: "a TLS handshake that failed" in caplog.text)


# ---- nobody is held up


def test_handshakes_that_stop_halfway_hold_nobody_up(
    served: SecuredServer, certificates: Certificates
) -> None:
    hello = client_hello(certificates)
    halfway = [served.connect("SSL") for _ in range(50)]
    for number, client in enumerate(halfway):
        client.sendall(hello[: len(hello) - number % 2 * 20])
    with served.connect("SSL", certificates.context()) as client:
        ask(client, ASK_VERSIONS)
    for client in halfway:
        client.close()


def client_hello(certificates: Certificates) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    stranger = certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        stranger.do_handshake()
    return outgoing.read()


def test_a_handshake_has_a_longest_time(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcomers, "LOOK_EVERY_MS", 20)
    with (
        SecuredServer(tmp_path, "SSL", **certificates.settings()) as server,
        server.connect("SSL", certificates.context()) as quick,
    ):
        ask(quick, ASK_VERSIONS)
        monkeypatch.setattr(newcomers, "LONGEST_LOGIN_MS", 50)
        with server.connect("SSL") as silent:
            assert is_closed(silent)
        ask(quick, ASK_VERSIONS)  # who is through stays


def test_the_oldest_stranger_makes_room(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecuredServer(tmp_path, "SSL", **certificates.settings()) as server:
        server.server.door.newcomers._most = 3
        strangers = [server.connect("SSL") for _ in range(4)]
        assert is_closed(strangers[0])
        until(lambda: len(server.server.door.newcomers) == 3)
        with server.connect("SSL", certificates.context()) as client:
            ask(client, ASK_VERSIONS)
        for client in strangers:
            client.close()


def test_a_turn_makes_a_bounded_number_of_handshake_steps() -> None:
    turn = 0
    handshakes = tls.Handshakes(lambda: turn)
    steps = [handshakes.may_step() for _ in range(tls.HANDSHAKE_STEPS_PER_TURN + 5)]
    assert steps.count(True) == tls.HANDSHAKE_STEPS_PER_TURN
    turn = 1
    assert handshakes.may_step()


def test_a_client_that_does_not_read_does_not_hold_others_up(
    served: SecuredServer, certificates: Certificates
) -> None:
    with served.connect("SSL", certificates.context()) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(200):
            slow.sendall(ASK_VERSIONS)
        with served.connect("SSL", certificates.context()) as other:
            ask(other, ASK_VERSIONS)
        for _ in range(200):
            assert ask(slow, b"")[:4] == struct.pack(">i", 1)


# ---- certificates change


def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_context, "LOOK_EVERY_MS", 20)
    own = Certificates(tmp_path / "certificates")
    with SecuredServer(tmp_path / "data", "SSL", **own.settings()) as server:

        def name_shown() -> str:
            with server.connect("SSL", own.context()) as client:
                assert isinstance(client, ssl.SSLSocket)
                shown = client.getpeercert()
                assert shown is not None
                ask(client, ASK_VERSIONS)
                subject: Any = shown["subject"]
                return str(dict(pair for (pair,) in subject)["commonName"])

        assert name_shown() == "localhost"
        with server.connect("SSL", own.context()) as before:
            own.renew_server("renewed")
            until(lambda: name_shown() == "renewed")
            ask(before, ASK_VERSIONS)  # who was in stays in
        own.server.write_text("no certificate any more")
        until(lambda: "are not used" in caplog.text)
        assert name_shown() == "renewed"


def altered(server: SecuredServer, name: str, value: str) -> str | None:
    """As kafka-configs does for one broker; what was said against it."""
    operation = AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(server.client("PLAINTEXT"))
    [future] = admin.incremental_alter_configs([resource]).values()
    try:
        future.result(60)
    except KafkaException as refused:
        assert refused.args[0].code() == KafkaError.INVALID_REQUEST
        return str(refused.args[0].str())
    return None


KEY_STORE = "listener.name.ssl.ssl.keystore.location"


def test_settings_of_a_running_node_change_its_certificate(tmp_path: Path) -> None:
    own = Certificates(tmp_path / "certificates")
    other = Certificates(tmp_path / "others")
    settings = own.settings()
    with SecuredServer(tmp_path / "data", "PLAINTEXT", "SSL", **settings) as server:
        assert altered(server, KEY_STORE, str(other.server)) is None

        def accepted() -> bool:
            try:
                with server.connect("SSL", other.context()) as client:
                    ask(client, ASK_VERSIONS)
            except ssl.SSLError:
                return False
            return True

        until(accepted)


def test_a_certificate_that_cannot_be_used_is_refused_when_it_is_named(tmp_path: Path) -> None:
    """As Apache Kafka, which tests/interop asks the same; and nothing has changed."""
    own = Certificates(tmp_path / "certificates")
    other = Certificates(tmp_path / "others")
    other.renew_server("somebody else")
    fewer = own.authority.issue(
        [("CN", "localhost")], now=own.now, lasts=LASTS, hosts=["localhost"]
    )
    lacking = tmp_path / "lacking.pem"
    lacking.write_text(fewer.together())
    no_key = str(own.ca)
    with SecuredServer(tmp_path / "data", "PLAINTEXT", "SSL", **own.settings()) as server:
        for value, said in (
            (str(tmp_path / "nowhere.pem"), "The listener SSL: .*nowhere.pem cannot be read"),
            (no_key, "cannot be used"),
            (str(other.server), "of CN=somebody else and not of CN=localhost"),
            (str(lacking), "lacks 1 of the alternative names"),
        ):
            refusal = altered(server, KEY_STORE, value)
            assert refusal is not None and re.search(said, refusal), refusal
        refusal = altered(server, "ssl.keystore.location", str(own.server))
        assert refusal is not None and "for one listener" in refusal
        assert altered(server, "listener.name.plaintext.ssl.keystore.location", "/nowhere") is None
        with server.connect("SSL", own.context()) as client:
            ask(client, ASK_VERSIONS)


def test_other_names_are_taken_where_that_is_allowed(tmp_path: Path) -> None:
    own = Certificates(tmp_path / "certificates")
    fewer = own.authority.issue([("CN", "other")], now=own.now, lasts=LASTS, hosts=["localhost"])
    (tmp_path / "other.pem").write_text(fewer.together())
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    settings = own.settings() | allowed
    with SecuredServer(tmp_path / "data", "PLAINTEXT", "SSL", **settings) as server:
        assert altered(server, KEY_STORE, str(tmp_path / "other.pem")) is None


def test_alternative_names_of_a_certificate_are_read(certificates: Certificates) -> None:
    der = ssl.PEM_cert_to_DER_cert(certificates.authority.pem.certificate)
    assert alternative_names_of(der) == frozenset()
    issued = certificates.authority.issue(
        [("CN", "x")], now=certificates.now, lasts=LASTS, hosts=["a.example", "127.0.0.1"]
    )
    der = ssl.PEM_cert_to_DER_cert(issued.certificate)
    assert alternative_names_of(der) == {(0x82, b"a.example"), (0x87, bytes((127, 0, 0, 1)))}
    with pytest.raises(MalformedCertificate):
        alternative_names_of(b"\x30\x03\x30\x01\x02")


# ---- settings


def refusal(folder: Path, **settings: str) -> str:
    with pytest.raises(CannotStart) as refused:
        SecuredServer(folder, "SSL", **settings)
    sentence = str(refused.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_certificates_may_stand_in_the_settings_themselves(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Also on one line, as in a properties file."""
    text = certificates.server.read_text().replace("\n", " ")
    key, _, chain = text.partition("-----BEGIN CERTIFICATE")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE{chain}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.ca.read_text().replace("\n", " "),
        "ssl.client.auth": "required",
    }
    with SecuredServer(tmp_path, "SSL", **settings) as server:
        context = certificates.context(certificates.client("alice"))
        with server.connect("SSL", context) as client:
            ask(client, ASK_VERSIONS)
            assert "User:CN=alice,O=shop" in principals(server)


def test_a_key_may_have_a_password(tmp_path: Path, certificates: Certificates) -> None:
    from cryptography.hazmat.primitives import serialization

    text = certificates.server.read_text()
    key = serialization.load_pem_private_key(text.encode(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    ).decode()
    path = tmp_path / "locked.pem"
    path.write_text(locked + text[text.index("-----BEGIN CERTIFICATE") :])
    settings = certificates.settings() | {"ssl.keystore.location": str(path)}
    sentence = refusal(tmp_path / "data", **settings)
    assert "cannot be used" in sentence
    wrong = settings | {"ssl.key.password": "wrong-secret"}
    assert "wrong-secret" not in refusal(tmp_path / "data", **wrong)
    right = settings | {"ssl.key.password": "open sesame"}
    with (
        SecuredServer(tmp_path / "data", "SSL", **right) as server,
        server.connect("SSL", certificates.context()) as client,
    ):
        ask(client, ASK_VERSIONS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "TLS needs a certificate"),
        ({"ssl.keystore.location": "/nowhere.jks"}, "ssl.keystore.type=JKS is not supported"),
        (
            {"ssl.keystore.location": "/nowhere.pem", "ssl.keystore.type": "PEM"},
            "/nowhere.pem cannot be read: No such file",
        ),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "older ones are not safe"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol must be one of"),
    ],
)
def test_what_cannot_be_honoured_does_not_start(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    assert said in refusal(tmp_path, **settings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssl.client.auth": "required", "ssl.truststore.location": ""}, "needs the certificates"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules has a pattern"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "all three suites of TLS 1.3"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH_WITH_THING"}, "no suite that OpenSSL has"),
        ({"ssl.keystore.certificate.chain": "x"}, "exclude each other"),
    ],
)
def test_settings_that_make_no_sense_do_not_start(
    tmp_path: Path, certificates: Certificates, change: dict[str, str], said: str
) -> None:
    assert said in refusal(tmp_path, **(certificates.settings() | change))


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_in_javas_spelling(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
