"""The folder that `headrace security init` writes and `headrace start --secure` reads.

ca.pem              the authority's certificate: clients trust it
ca-key.pem          its key, to sign more certificates; keep it elsewhere once that is done
server.pem          the node's key and certificate
server.properties   the node's settings: SASL_SSL, SCRAM, an authorizer
first-users.json    what is kept of the first user's password: salts and keys
admin.properties    for the first user's clients, by Java's names: Apache's tools, `headrace`
admin.conf          the same by librdkafka's names: kcat -F, confluent-kafka

Files with secrets can be read by their owner alone. Nothing that is there is ever overwritten.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from headrace.cli.failure import Failure
from headrace.cli.secured.certificates import Authority
from headrace.node.metadata.config_definitions.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from headrace.node.serving.authentication.scram import (
    MECHANISMS,
    USUAL_ITERATIONS,
    USUAL_SALT_BYTES,
    credential_of,
)
from headrace.wire.contract import delay_login

AUTHORITY_LASTS = timedelta(days=3650)
SERVER_LASTS = timedelta(days=825)  # what Apple's and others' clients take at most
PASSWORD_BYTES = 18
CLIENT_MECHANISM = "SCRAM-SHA-512"


class SecurityFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, *, user: str, address: str, hosts: Sequence[str], now: datetime) -> None:
        """`address` is HOST:PORT of the node, `hosts` the names that its certificate is for."""
        try:
            self.folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            raise Failure(
                f"{self.folder} is there already; name another folder, or remove it."
            ) from None
        except OSError as failure:
            raise Failure(f"The folder {self.folder} cannot be made: {failure.strerror}.") from None
        authority = Authority.new("Headrace", now=now, lasts=AUTHORITY_LASTS)
        server = authority.issue([("CN", hosts[0])], now=now, lasts=SERVER_LASTS, hosts=hosts)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        self._write("ca.pem", authority.pem.certificate, secret=False)
        self._write("ca-key.pem", authority.pem.together())
        self._write("server.pem", server.together())
        self._write("first-users.json", first_user(user, password))
        self._write("server.properties", self._server_properties(address, user), secret=False)
        self._write("admin.properties", self._java_client(address, user, password))
        self._write("admin.conf", self._librdkafka_client(address, user, password))

    def _write(self, name: str, text: str, *, secret: bool = True) -> None:
        mode = 0o600 if secret else 0o644
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)

    def _server_properties(self, address: str, user: str) -> str:
        # The node's own delay service writes to every topic that takes delayed messages.
        trusted = (user, delay_login.USER)
        return lines(
            {
                "listeners": f"SASL_SSL://{address}",
                "inter.broker.listener.name": "SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.path("server.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.path("ca.pem"),
                "sasl.enabled.mechanisms": ",".join(MECHANISMS.values()),
                "headrace.first.users": self.path("first-users.json"),
                AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
                SUPER_USERS: ";".join(f"User:{name}" for name in trusted),
            }
        )

    def _java_client(self, address: str, user: str, password: str) -> str:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return lines(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": CLIENT_MECHANISM,
                "sasl.jaas.config": (f'{module} required username="{user}" password="{password}";'),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.path("ca.pem"),
            }
        )

    def _librdkafka_client(self, address: str, user: str, password: str) -> str:
        return lines(
            {
                "bootstrap.servers": address,
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": CLIENT_MECHANISM,
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": self.path("ca.pem"),
            }
        )


def lines(settings: dict[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def first_user(name: str, password: str) -> str:
    """As `node/process/settings/first_users.py` reads it."""
    kept = []
    for kind, mechanism in MECHANISMS.items():
        salt = secrets.token_bytes(USUAL_SALT_BYTES)
        credential = credential_of(kind, password, salt=salt, iterations=USUAL_ITERATIONS)
        kept.append(
            {
                "user": name,
                "mechanism": mechanism,
                "iterations": credential.iterations,
                "salt": base64.b64encode(salt).decode(),
                "stored_key": base64.b64encode(credential.stored_key).decode(),
                "server_key": base64.b64encode(credential.server_key).decode(),
            }
        )
    return json.dumps(kept, indent=2) + "\n"
