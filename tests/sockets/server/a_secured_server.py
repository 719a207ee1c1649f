"""A server with listeners of several protocols, its certificates, and clients for them."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.cli.secured.certificates import Authority
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import load_settings

LASTS = timedelta(days=1)
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="wonder" user_bob="builder";'
)


class Certificates:
    """An authority, a server's certificate for localhost, and clients' as they are asked for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now = datetime.now(UTC)
        self.authority = Authority.new("Tests", now=self.now, lasts=LASTS)
        self.ca = self._write("ca.pem", self.authority.pem.certificate)
        self.server = folder / "server.pem"
        self.renew_server()

    def renew_server(self, name: str = "localhost") -> None:
        issued = self.authority.issue(
            [("CN", name)], now=self.now, lasts=LASTS, hosts=["localhost", "127.0.0.1"]
        )
        replaced = self._write("server.new", issued.together())
        replaced.replace(self.server)

    def client(self, name: str, authority: Authority | None = None) -> Path:
        issued = (authority or self.authority).issue(
            [("O", "shop"), ("CN", name)], now=self.now, lasts=LASTS
        )
        return self._write(f"{name}.pem", issued.together())

    def stranger(self, name: str) -> Path:
        """Signed by somebody whom nobody here trusts."""
        return self.client(name, Authority.new("Elsewhere", now=self.now, lasts=LASTS))

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def settings(self, **more: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        } | {name.replace("_", "."): value for name, value in more.items()}

    def context(self, client: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client)
        return context


class SecuredServer:
    """`listeners` are names or protocols; each gets a free port of loopback."""

    def __init__(self, folder: Path, *listeners: str, **settings: str) -> None:
        given = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners),
            "headrace.delay.service": "off",
        }
        self.server = Server(load_settings(data=str(folder), overrides=given | settings))
        self.server.open(own_process=False)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def port(self, listener: str) -> int:
        (found,) = [each for each in self.server.listeners if each.name == listener]
        return found.port

    def connect(self, listener: str, context: ssl.SSLContext | None = None) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port(listener)), timeout=60)
        if context is None:
            return plain
        return context.wrap_socket(plain, server_hostname="localhost")

    def client(self, listener: str, **settings: Any) -> dict[str, Any]:
        """Settings for librdkafka."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": f"127.0.0.1:{self.port(listener)}", "log_level": 0} | named

    def __enter__(self) -> SecuredServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def ask(connection: socket.socket, frame: bytes) -> bytes:
    """One frame, and the frame that answers it without its length."""
    connection.sendall(frame)
    (length,) = struct.unpack(">i", receive(connection, 4))
    return receive(connection, length)


def receive(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        some = connection.recv(length - len(received))
        if not some:
            raise ConnectionError("closed")
        received += some
    return received


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of a connection."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
