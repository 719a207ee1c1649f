"""Four clients log in by each mechanism, at ours and at Apache Kafka, and are told the same.

Also Apache's own tools: users are administered by kafka-configs.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.node.serving.authentication.certificate_names import subject_of
from headrace.operations.checkup.kcat import kcat_version
from tests.interop.java_session import JavaSession
from tests.interop.logins import (
    MECHANISMS,
    ApacheOfAllProtocols,
    Credentials,
    HeadraceOfAllProtocols,
    Login,
    SecuredNode,
    all_logins,
    java_settings,
    librdkafka_settings,
    settings,
    signer,
)
from tests.interop.tools import tool
from tests.interop.topics import create_topic
from tests.patience import until
from tests.sockets.server.a_secured_server import LASTS, Certificates

CLIENTS = ("librdkafka", "java", "franz-go", "kafkajs")
CONFIGS = "kafka.admin.ConfigCommand"
NEVER_WRITTEN = "never-written"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ours(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, java: JavaSession
) -> Iterator[SecuredNode]:
    folder = tmp_path_factory.mktemp("ours")
    with HeadraceOfAllProtocols(folder, settings(certificates)) as node:
        assert isinstance(node, HeadraceOfAllProtocols)
        add_users(node, java)
        yield node


@pytest.fixture(scope="module")
def apache(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, java: JavaSession
) -> Iterator[SecuredNode]:
    folder = tmp_path_factory.mktemp("apache")
    with ApacheOfAllProtocols(folder, settings(certificates)) as node:
        assert isinstance(node, ApacheOfAllProtocols)
        add_users(node, java)
        until(lambda: coordinates(node))
        yield node


@pytest.fixture(scope="module")
def logins(java: JavaSession) -> dict[str, Login]:
    return all_logins(java)


def add_users(node: SecuredNode, java: JavaSession) -> None:
    """By Apache's own tool."""
    for wish in (
        "SCRAM-SHA-256=[iterations=8192,password=wonder]",
        "SCRAM-SHA-512=[password=wonder]",
    ):
        said = java.run(
            CONFIGS,
            *("--bootstrap-server", node.bootstrap, "--alter", "--entity-type", "users"),
            *("--entity-name", "alice", "--add-config", wish),
        )
        assert "Completed updating config for user alice." in said


def coordinates(node: SecuredNode) -> bool:
    """Whether groups can be joined: Apache Kafka first makes a topic for that, and loads it."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "asks-only"})
    try:
        return bool(consumer.committed([TopicPartition(NEVER_WRITTEN, 0)], timeout=60))
    except KafkaException:
        return False
    finally:
        consumer.close()


def both(
    login: Login, ours: SecuredNode, apache: SecuredNode, topic: str, shown: Credentials
) -> tuple[dict[str, str], dict[str, str]]:
    found = []
    for node in (ours, apache):
        name = topic
        if topic != NEVER_WRITTEN:
            name = create_topic(node.bootstrap, topic)
        found.append(login(node, name, shown))
    return found[0], found[1]


READ = {"read": "200000 bytes"}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_who_knows_the_password_gets_in(
    ours: SecuredNode,
    logins: dict[str, Login],
    certificates: Certificates,
    client: str,
    mechanism: str,
    listener: str,
) -> None:
    ca = str(certificates.ca) if listener == "SASL_SSL" else ""
    topic = create_topic(ours.bootstrap, f"in-{client}-{mechanism}-{listener}")
    shown = Credentials(listener, ca).by(mechanism)
    assert logins[client](ours, topic, shown) == READ


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder")])
def test_who_does_not_is_told_the_same_as_by_apache_kafka(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    certificates: Certificates,
    client: str,
    mechanism: str,
    user: str,
    password: str,
) -> None:
    shown = Credentials("SASL_SSL", str(certificates.ca)).by(mechanism, user, password)
    mine, theirs = both(logins[client], ours, apache, NEVER_WRITTEN, shown)
    assert mine["error"] == theirs["error"], (mine, theirs)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_mechanism_that_is_not_offered(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    client: str,
) -> None:
    """On a listener of each that takes SCRAM-SHA-512 alone."""
    shown = Credentials("STRICT").by("PLAIN")
    mine, theirs = both(logins[client], ours, apache, NEVER_WRITTEN, shown)
    assert mine["error"] == theirs["error"], (mine, theirs)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_signed_token_opens(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    certificates: Certificates,
    client: str,
) -> None:
    shown = Credentials("SASL_SSL", str(certificates.ca), mechanism="OAUTHBEARER")
    shown = replace(shown, token=signer(certificates).token())
    mine, theirs = both(logins[client], ours, apache, f"token-{client}", shown)
    assert mine == theirs == READ


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["expired", "for another audience"])
def test_a_token_with_a_fault_does_not(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    certificates: Certificates,
    client: str,
    fault: str,
) -> None:
    wrong = {"aud": "elsewhere"} if fault != "expired" else {"exp": int(time.time()) - 100}
    shown = Credentials("SASL_SSL", str(certificates.ca), mechanism="OAUTHBEARER")
    shown = replace(shown, token=signer(certificates).token(**wrong))
    mine, theirs = both(logins[client], ours, apache, NEVER_WRITTEN, shown)
    assert mine["error"] == theirs["error"], (mine, theirs)


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_and_certificates(
    ours: SecuredNode, logins: dict[str, Login], certificates: Certificates, client: str
) -> None:
    topic = create_topic(ours.bootstrap, f"tls-{client}")
    ca = str(certificates.ca)
    assert logins[client](ours, topic, Credentials("SSL", ca)) == READ
    mine = str(certificates.client("alice"))
    topic = create_topic(ours.bootstrap, f"mutual-{client}")
    assert logins[client](ours, topic, Credentials("MUTUAL", ca, mine)) == READ


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("shown", ["nothing", "a stranger's"])
def test_without_a_certificate_or_with_a_foreign_one(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    certificates: Certificates,
    client: str,
    shown: str,
) -> None:
    certificate = "" if shown == "nothing" else str(certificates.stranger("mallory"))
    credentials = Credentials("MUTUAL", str(certificates.ca), certificate)
    mine, theirs = both(logins[client], ours, apache, NEVER_WRITTEN, credentials)
    assert mine["error"] == theirs["error"], (mine, theirs)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_whom_the_client_does_not_trust(
    ours: SecuredNode,
    apache: SecuredNode,
    logins: dict[str, Login],
    tmp_path: Path,
    client: str,
) -> None:
    """The client ends the handshake; both brokers live on."""
    elsewhere = Certificates(tmp_path)
    mine, theirs = both(
        logins[client], ours, apache, NEVER_WRITTEN, Credentials("SSL", str(elsewhere.ca))
    )
    assert mine["error"] == theirs["error"], (mine, theirs)


# ---- Apache's tools


def test_kafka_configs_administers_users(ours: SecuredNode, java: JavaSession) -> None:
    at = ("--bootstrap-server", ours.bootstrap)
    user = ("--entity-type", "users", "--entity-name", "dora")
    java.run(CONFIGS, *at, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=explorer]")
    described = java.run(CONFIGS, *at, *user, "--describe")
    assert "SCRAM-SHA-256=iterations=4096" in described
    java.run(CONFIGS, *at, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in java.run(CONFIGS, *at, *user, "--describe")


def test_a_tool_logs_in_by_its_command_config(
    ours: SecuredNode, java: JavaSession, certificates: Certificates, tmp_path: Path
) -> None:
    shown = Credentials("SASL_SSL", str(certificates.ca)).by("SCRAM-SHA-512")
    given = java_settings(ours, shown)
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    said = java.run(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", given["bootstrap.servers"], "--command-config", str(path)),
        "--list",
    )
    assert said is not None


NAMES = [
    [("CN", "alice")],
    [("C", "DE"), ("O", "A shop"), ("OU", "web"), ("OU", "blue"), ("CN", "alice")],
    [("CN", 'a,b+c"d\\e<f>g;h=i#j')],
    [("CN", "#hash")],
    [("CN", "  two  spaces  ")],
    [("CN", "jürgen 😀 中")],
    [("CN", "a"), ("emailAddress", "a@b.c")],
]


def test_names_in_certificates_are_written_as_java_writes_them(
    java: JavaSession, certificates: Certificates
) -> None:
    """ACLs and mapping rules are written against that text."""
    for name in NAMES:
        issued = certificates.authority.issue(name, now=certificates.now, lasts=LASTS)
        theirs = java.run("CertificateName", stdin=issued.certificate).rstrip("\n")
        assert subject_of(ssl.PEM_cert_to_DER_cert(issued.certificate)) == theirs


def test_clients_log_in_again_before_their_session_ends(
    tmp_path: Path, certificates: Certificates, java: JavaSession
) -> None:
    """KIP-368: one connection, many logins, and nothing is lost. Two clients at the same time.

    They log in anew when less than a tenth of the session is left: it is long, so that this is a
    second.
    """
    session_s, seconds = 10, 21
    given = settings(certificates) | {"connections.max.reauth.ms": str(session_s * 1000)}
    with HeadraceOfAllProtocols(tmp_path, given) as node:
        assert isinstance(node, HeadraceOfAllProtocols)
        topic = create_topic(node.bootstrap, "long")
        shown = Credentials("SASL_SSL", str(certificates.ca)).by("PLAIN")
        left: list[int] = []

        def send() -> None:
            producer = Producer(librdkafka_settings(node, shown))
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                producer.produce(topic, b"x")
                left.append(producer.flush(60))

        sending = threading.Thread(target=send)
        sending.start()
        job = {"settings": java_settings(node, shown), "topic": topic, "seconds": seconds}
        answer = json.loads(java.run("LongLogin", stdin=json.dumps(job)))
        sending.join()
        assert left and not any(left)
        assert answer["sent"] and not answer["failed"]
        assert "expired" not in node.log_text()


# ---- certificates that are changed while a node runs


def test_new_certificates_are_judged_alike(
    ours: SecuredNode, apache: SecuredNode, certificates: Certificates, tmp_path: Path
) -> None:
    """Refused when they are named, not when they are used; nothing is changed here."""

    def issued(name: str, *hosts: str) -> str:
        made = certificates.authority.issue(
            [("CN", name)], now=certificates.now, lasts=LASTS, hosts=hosts
        )
        path = tmp_path / f"{name}-{len(hosts)}.pem"
        path.write_text(made.together())
        return str(path)

    here = ("localhost", "127.0.0.1")
    store = "listener.name.ssl.ssl.keystore.location"
    wishes = {
        "a new key for the same names": (store, issued("localhost", *here)),
        "more alternative names": (store, issued("localhost", *here, "more.example")),
        "fewer alternative names": (store, issued("localhost", "localhost")),
        "another subject": (store, issued("elsewhere", *here)),
        "a file that is not there": (store, str(tmp_path / "nowhere.pem")),
        "a certificate without its key": (store, str(certificates.ca)),
        "another form of store": ("listener.name.ssl.ssl.keystore.type", "JKS"),
        "for every listener": ("ssl.keystore.location", issued("localhost", *here)),
        "of a listener without TLS": (
            "listener.name.plaintext.ssl.keystore.location",
            str(tmp_path / "nowhere.pem"),
        ),
        "trusted ones that are none": (
            "listener.name.mutual.ssl.truststore.location",
            issued("nobody") + ".not",
        ),
    }

    def told(node: SecuredNode) -> dict[str, str]:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        found = {}
        for what, (name, value) in wishes.items():
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            [future] = admin.incremental_alter_configs([broker], validate_only=True).values()
            try:
                future.result(60)
                found[what] = "taken"
            except KafkaException as refused:
                found[what] = refused.args[0].name()
        return found

    mine = told(ours)
    assert mine == told(apache)
    assert mine["a new key for the same names"] == "taken"
    assert mine["another subject"] == "INVALID_REQUEST"


# Before it, librdkafka put its own nonce before the server's once more. RFC 5802 wants the server's
# as it was; Apache Kafka compares since 4.0, so do we (librdkafka pull 4895).
FIRST_WITH_THE_RIGHT_NONCE = (2, 6, 1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_kcat_gets_in_at_ours_where_it_does_at_apache_kafka(
    ours: SecuredNode, apache: SecuredNode, mechanism: str
) -> None:
    """Debian 12 has kcat with librdkafka 2.0.2, whose SCRAM both refuse; PLAIN works at both."""
    version = kcat_version(tool("kcat"))
    assert version is not None
    let_in = mechanism == "PLAIN" or version >= FIRST_WITH_THE_RIGHT_NONCE
    for node in (ours, apache):
        settings = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "wonder",
        }
        given = [word for pair in settings.items() for word in ("-X", "=".join(pair))]
        at = f"localhost:{node.ports['SASL_PLAINTEXT']}"
        command = [tool("kcat"), "-L", "-m", "5", "-b", at, *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) is let_in, done.stderr
        if not let_in:
            assert "invalid credentials" in done.stderr
