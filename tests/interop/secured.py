"""Brokers that ask for a login and for rights: Headrace and Apache Kafka, told the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.wire.protocol.messages import sasl_authenticate, sasl_handshake
from headrace.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.wire import Connection
from tests.interop.brokers import ApacheNode, HeadraceNode, Node

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# The password is like nothing else, so that one can look for it where it must not be.
ADMIN, PASSWORD = "admin", "right-p1anted-5ecret"


def jaas(users: Iterable[str]) -> str:
    """Users of SASL PLAIN in Java's form; all of them have one password."""
    known = " ".join(f'user_{name}="{PASSWORD}"' for name in users)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{ADMIN}" password="{PASSWORD}" {known};'


class Secured:
    """What both have in common: one listener for clients, on which everybody logs in."""

    @staticmethod
    def settings(bootstrap: str, users: Iterable[str]) -> dict[str, str]:
        return {
            "listeners": f"SASL_PLAINTEXT://{bootstrap}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas({ADMIN, *users}),
            "authorizer.class.name": STANDARD,
            "super.users": f"User:{ADMIN}",
        }


class SecuredHeadrace(HeadraceNode):
    def __init__(self, folder: Path, users: Iterable[str], **settings: str) -> None:
        super().__init__(folder, settings)
        self.settings |= Secured.settings(self.bootstrap, users)

    def command(self) -> list[str]:
        program, start, data, folder, _, _, *rest = super().command()
        return [program, start, data, folder, *rest]  # where to listen is among the settings


class SecuredApache(ApacheNode):
    def __init__(self, folder: Path, users: Iterable[str], **settings: str) -> None:
        super().__init__(folder, settings)
        shared = Secured.settings(self.bootstrap, users)
        controller = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        protocols = "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        self.settings |= shared | {
            "listeners": f"{shared['listeners']},{controller}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            # Brokers come to the controller without a login.
            "super.users": f"{shared['super.users']};User:ANONYMOUS",
        }


def secured_node(kind: str, folder: Path, users: Iterable[str], **settings: str) -> Node:
    kinds = {"headrace": SecuredHeadrace, "apache": SecuredApache}
    return kinds[kind](folder, users, **settings)


def log_in(node: Node, user: str, password: str = PASSWORD) -> Connection:
    connection = Connection(node.port)
    offered = connection.ask(sasl_handshake, 1, SaslHandshakeRequest("PLAIN"))
    assert offered.error_code == 0, offered  # type: ignore[attr-defined]
    token = f"\0{user}\0{password}".encode()
    answer = connection.ask(sasl_authenticate, 2, SaslAuthenticateRequest(token))
    assert answer.error_code == 0, answer  # type: ignore[attr-defined]
    return connection


def client_settings(user: str, password: str = PASSWORD) -> dict[str, str]:
    """librdkafka's words for the same."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def java_client_file(folder: Path, user: str, password: str = PASSWORD) -> Path:
    """Java's words for the same, as a file for `--command-config`."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
    return path
