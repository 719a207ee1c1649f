"""How many logins by SCRAM-SHA-256 does a broker take per second, and what does one cost it?

Four clients connect to a SASL_PLAINTEXT listener, ask for versions, log in and leave, again and
again. The client keeps the salted password, so that its own hashing does not bound the rate; the
broker checks a proof and makes one, as for any client. Warm-up: a fifth of the logins before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading

from headrace.wire.protocol.messages import api_versions, sasl_authenticate, sasl_handshake

from . import wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import measured
from .results import Better, Goal, Row, Samples
from .secured import ITERATIONS, SALTED, USER, add_user, ask_for_passwords

CLIENTS = 4
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
CLIENT_KEY = hmac.digest(SALTED, b"Client Key", "sha256")
STORED_KEY = hashlib.sha256(CLIENT_KEY).digest()


def measure(run: Run) -> Samples:
    ask_for_passwords(run.target)
    with run.target.start() as broker:
        add_user(broker)
        logins = run.count(4_000, 200)
        together(broker, logins // 5)
        usage = measured(broker, lambda: together(broker, logins))
        run.watch_noise("logins", usage)
    return {
        "rate": [logins / usage.wall_s],
        "cpu": [usage.broker_s * 1e3 / (logins / 1000)],
    }


def together(broker: Broker, logins: int) -> None:
    port = broker.target.listeners["SASL_PLAINTEXT"]
    failures: list[Exception] = []

    def many() -> None:
        try:
            for _ in range(logins // CLIENTS):
                log_in(port)
        except Exception as failure:  # noqa: BLE001 - told below
            failures.append(failure)

    threads = [threading.Thread(target=many) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def log_in(port: int) -> None:
    with wire.connect(port) as connection:
        wire.ask(connection, api_versions, 0, api_versions.ApiVersionsRequest())
        asked = sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-256")
        offer = wire.ask(connection, sasl_handshake, HANDSHAKE_VERSION, asked)
        wire.succeed(offer.error_code, "handshake")

        def say(token: str) -> str:
            request = sasl_authenticate.SaslAuthenticateRequest(token.encode())
            answer = wire.ask(connection, sasl_authenticate, AUTHENTICATE_VERSION, request)
            wire.succeed(answer.error_code, "login")
            return bytes(answer.auth_bytes).decode()

        bare = f"n={USER},r={base64.b64encode(os.urandom(18)).decode()}"
        challenge = say(f"n,,{bare}")
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        assert fields["i"] == str(ITERATIONS)
        final = f"c=biws,r={fields['r']}"
        signature = hmac.digest(STORED_KEY, f"{bare},{challenge},{final}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(CLIENT_KEY, signature, strict=True))
        verdict = say(f"{final},p={base64.b64encode(proof).decode()}")
        assert verdict.startswith("v=")


BENCHMARK = Benchmark(
    "Logins (SCRAM-SHA-256)",
    (
        Row("rate", "logins, four clients", "per s", Goal(Better.MORE, ratio=1.0)),
        Row("cpu", "broker CPU of 1,000 logins", "ms", Goal(Better.LESS, ratio=1.0)),
    ),
    measure,
)
