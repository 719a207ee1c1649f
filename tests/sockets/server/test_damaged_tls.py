"""TLS that was changed on its way: hellos and records, damaged the same in each run.

Each ends its own connection and nothing else: no traceback in the log, no handshake that stays, and
who comes next is served.
"""

from __future__ import annotations

import contextlib
import logging
import random
import ssl
import struct
from collections.abc import Iterator

import pytest

from tests.fuzz.seeded import damaged
from tests.patience import until
from tests.sockets.server.a_secured_server import Certificates, SecuredServer, ask, is_closed
from tests.unit.node.serving.conversation import frame

SEED = 8
DAMAGED = 150
API_VERSIONS = frame(18, 0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("data")
    given = certificates.settings(ssl_client_auth="requested")
    with SecuredServer(folder, "SSL", **given) as server:
        yield server


class Client:
    """TLS over memory, so that its bytes can be changed before they leave."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.heard, self.said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.heard, self.said, server_hostname="localhost")

    def hello(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.said.read()


def serves(served: SecuredServer, certificates: Certificates) -> None:
    with served.connect("SSL", certificates.context()) as client:
        assert ask(client, API_VERSIONS)[:4] == struct.pack(">i", 1)


@pytest.mark.integration
def test_damaged_hellos_end_their_own_connection(
    served: SecuredServer, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    hello = Client(certificates.context()).hello()
    assert len(hello) > 200
    with contextlib.ExitStack() as held:
        for _ in range(DAMAGED):
            client = held.enter_context(served.connect("SSL"))
            with contextlib.suppress(OSError):
                client.sendall(damaged(hello, chance) + chance.randbytes(chance.randrange(40)))
        serves(served, certificates)
    assert_quiet(caplog)
    until(lambda: not served.server.loop.connections and not len(served.server.door.newcomers))


@pytest.mark.parametrize("what", ["the certificate of a client", "a request"])
def test_damaged_records_end_their_own_connection(
    served: SecuredServer, certificates: Certificates, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    chance = random.Random(SEED)
    context = certificates.context(certificates.client("ann"))
    for _ in range(DAMAGED // 5):
        with served.connect("SSL") as connection:
            client = Client(context)
            connection.sendall(client.hello())
            while True:
                client.heard.write(connection.recv(1 << 16))
                try:
                    client.tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    continue
            last = client.said.read()
            if what == "a request":
                connection.sendall(last)
                client.tls.write(API_VERSIONS)
                last = client.said.read()
            changed = bytearray(last)
            changed[chance.randrange(5, len(changed))] ^= 1 << chance.randrange(8)
            with contextlib.suppress(OSError):
                connection.sendall(changed)
            while not is_closed(connection):
                pass  # an alert comes first
    serves(served, certificates)
    assert_quiet(caplog)


def assert_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The node; a client that another test has left alone may say that its broker is gone."""
    ours = [record for record in caplog.records if not record.name.startswith("headrace.client")]
    loud = [record for record in ours if record.levelno >= logging.ERROR]
    assert not loud, loud[0].getMessage()
