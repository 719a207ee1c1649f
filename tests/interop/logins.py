"""Nodes with listeners of every protocol, ours and Apache Kafka's, and four clients that log in.

Each client gets `Credentials` and answers with what it has read, or with the name of the error that
it saw in its own language; so the same test compares both brokers by what their clients are told.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.interop.brokers import ApacheNode, HeadraceNode, Node, free_port
from tests.interop.java_session import JavaSession
from tests.interop.tools import built_go_program, installed_node_program, tool
from tests.sockets.server.a_secured_server import PLAIN_USERS, Certificates

MAP = (
    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
    "SASL_SSL:SASL_SSL,STRICT:SASL_PLAINTEXT"
)
LISTENERS = ("SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL", "STRICT")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def settings(certificates: Certificates) -> dict[str, str]:
    found = certificates.settings() | {
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        KEYS_URL: signer(certificates).keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://login.example",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.strict.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.strict.scram-sha-512.sasl.jaas.config": _SCRAM,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}."
        found[f"{prefix}plain.sasl.jaas.config"] = PLAIN_USERS
        for mechanism in MECHANISMS[1:]:
            found[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = _SCRAM
        found[f"{prefix}oauthbearer.sasl.jaas.config"] = (
            f"{_OAUTH}.OAuthBearerLoginModule required;"
        )
        found[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = (
            f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        )
    return found


def with_listeners(node: Node, *controller: str) -> dict[str, int]:
    """Give a node a port for each listener; PLAINTEXT stays its first."""
    ports = {name: free_port() for name in LISTENERS}
    places = [f"PLAINTEXT://{node.bootstrap}", *controller]
    # By name, because clients compare it with the certificate.
    places += [f"{name}://localhost:{port}" for name, port in ports.items()]
    node.settings["listeners"] = ",".join(places)
    return ports


class HeadraceOfAllProtocols(HeadraceNode):
    def __init__(self, folder: Path, given: dict[str, str]) -> None:
        super().__init__(folder, given)
        self.ports = with_listeners(self)

    def command(self) -> list[str]:
        program = Path(sys.executable).with_name("headrace")
        given = [part for k, v in self.settings.items() for part in ("--set", f"{k}={v}")]
        return [str(program), "start", "--data", str(self.data), *given]


class ApacheOfAllProtocols(ApacheNode):
    def __init__(self, folder: Path, given: dict[str, str]) -> None:
        super().__init__(folder, given)
        self.ports = with_listeners(self, f"CONTROLLER://127.0.0.1:{self.controller_port}")

    def command(self) -> list[str]:
        """It reads keys from files only if its JVM is told so."""
        java, *rest = super().command()
        return [java, f"-D{ALLOWED_URLS}={self.settings[KEYS_URL]}", *rest]


SecuredNode = HeadraceOfAllProtocols | ApacheOfAllProtocols


class Signer:
    """Makes tokens, and the file with the key by which they are checked."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        entry = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [{**entry, "kid": "k", "alg": "ES256"}]}))
        self.keys_url = keys.as_uri()

    def token(self, **change: Any) -> str:
        now = int(time.time())
        claims = {"sub": "alice", "aud": "kafka", "iss": "https://login.example"}
        times = {"iat": now, "exp": now + 300}
        return jwt.encode({**claims, **times, **change}, self._key, "ES256", headers={"kid": "k"})


@functools.cache
def signer(certificates: Certificates) -> Signer:
    return Signer(certificates.folder)


@dataclass(slots=True, frozen=True)
class Credentials:
    """What a client shows, and to which listener."""

    listener: str
    ca: str = ""
    certificate: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""

    def by(self, mechanism: str, user: str = "alice", password: str = "wonder") -> Credentials:
        return replace(self, mechanism=mechanism, user=user, password=password)

    @property
    def protocol(self) -> str:
        return {"MUTUAL": "SSL", "STRICT": "SASL_PLAINTEXT"}.get(self.listener, self.listener)


Login = Callable[[SecuredNode, str, Credentials], dict[str, str]]


def where(node: SecuredNode, shown: Credentials) -> str:
    return f"localhost:{node.ports[shown.listener]}"


def librdkafka_settings(node: SecuredNode, shown: Credentials) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": where(node, shown),
        "security.protocol": shown.protocol.lower(),
        "log_level": 0,
    }
    if shown.ca:
        found["ssl.ca.location"] = shown.ca
    if shown.certificate:
        found["ssl.certificate.location"] = found["ssl.key.location"] = shown.certificate
    if shown.mechanism:
        found["sasl.mechanism"] = shown.mechanism
    if shown.token:
        found["oauth_cb"] = lambda _: (shown.token, time.time() + 300, "", {})
    elif shown.mechanism:
        found |= {"sasl.username": shown.user, "sasl.password": shown.password}
    return found


# A connection can also just be lost on a busy machine; why it cannot be had comes with the next.
WAIT_FOR_MORE_S = 4.0


def telling(errors: list[confluent_kafka.KafkaError]) -> list[confluent_kafka.KafkaError]:
    vague = (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError._ALL_BROKERS_DOWN)
    return [error for error in errors if error.code() not in vague]


def by_librdkafka(node: SecuredNode, topic: str, shown: Credentials) -> dict[str, str]:
    errors: list[confluent_kafka.KafkaError] = []
    given = librdkafka_settings(node, shown) | {"reconnect.backoff.max.ms": 300}
    producer = confluent_kafka.Producer(given | {"error_cb": errors.append})
    producer.produce(topic, b"x" * 200_000, partition=0)
    deadline = time.monotonic() + 400
    while len(producer) and not telling(errors) and time.monotonic() < deadline:
        producer.poll(0.1)
        if errors:
            deadline = min(deadline, time.monotonic() + WAIT_FOR_MORE_S)
    if errors:
        producer.purge()
        return {"error": (telling(errors) or errors)[0].name()}
    consumer = confluent_kafka.Consumer(given | {"group.id": "never-joined"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    message = consumer.poll(120)
    consumer.close()
    assert message is not None and message.error() is None
    return {"read": f"{len(message.value())} bytes"}


def java_settings(node: SecuredNode, shown: Credentials) -> dict[str, str]:
    found = {"bootstrap.servers": where(node, shown), "security.protocol": shown.protocol}
    if shown.ca:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": shown.ca}
    if shown.certificate:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": shown.certificate}
    if shown.token:
        found |= {
            "sasl.mechanism": shown.mechanism,
            "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token_file(node, shown).as_uri(),
        }
    elif shown.mechanism:
        kind = "plain.Plain" if shown.mechanism == "PLAIN" else "scram.Scram"
        found["sasl.mechanism"] = shown.mechanism
        found["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{kind}LoginModule required "
            f'username="{shown.user}" password="{shown.password}";'
        )
    return found


def token_file(node: SecuredNode, shown: Credentials) -> Path:
    path = node.folder / f"token-{hashlib.sha256(shown.token.encode()).hexdigest()[:8]}.jwt"
    path.write_text(shown.token)
    return path


def by_java(session: JavaSession) -> Login:
    def login(node: SecuredNode, topic: str, shown: Credentials) -> dict[str, str]:
        given = java_settings(node, shown)
        url = given.get("sasl.oauthbearer.token.endpoint.url")
        properties = {} if url is None else {ALLOWED_URLS: url}
        job = {"settings": given, "topic": topic, "properties": properties}
        answer: dict[str, str] = json.loads(session.run("Login", stdin=json.dumps(job)))
        return answer

    return login


def by_program(*command: str) -> Login:
    def login(node: SecuredNode, topic: str, shown: Credentials) -> dict[str, str]:
        job = {
            "verb": "login",
            "bootstrap": where(node, shown),
            "topic": topic,
            "credentials": asdict(shown),
        }
        done = subprocess.run(
            list(command), input=json.dumps(job), capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, str] = json.loads(done.stdout)
        return answer

    return login


def all_logins(session: JavaSession) -> dict[str, Login]:
    return {
        "librdkafka": by_librdkafka,
        "java": by_java(session),
        "franz-go": by_program(str(built_go_program())),
        "kafkajs": by_program(tool("node"), str(installed_node_program() / "login.js")),
    }
