"""What the benchmarks of encryption and logins give both brokers: a certificate and a user."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta

from headrace.cli.secured.certificates import Authority
from headrace.wire.protocol.messages import alter_user_scram_credentials

from . import wire
from .brokers import HOST, Broker, Target, free_port

USER, PASSWORD, SALT, ITERATIONS = "bench", "wonder", b"0123456789abcdef", 4096
SHA_256 = 1
SALTED = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def encrypt(target: Target) -> ssl.SSLContext:
    """Give the target a listener SSL; the context is for its clients."""
    now, lasts = datetime.now(UTC), timedelta(days=1)
    authority = Authority.new("Benchmarks", now=now, lasts=lasts)
    issued = authority.issue([("CN", "localhost")], now=now, lasts=lasts, hosts=[HOST])
    (target.folder / "server.pem").write_text(issued.together())
    (target.folder / "ca.pem").write_text(authority.pem.certificate)
    target.listeners["SSL"] = free_port()
    target.settings |= {
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(target.folder / "server.pem"),
    }
    return ssl.create_default_context(cafile=str(target.folder / "ca.pem"))


def ask_for_passwords(target: Target) -> None:
    """Give the target a listener SASL_PLAINTEXT with SCRAM-SHA-256."""
    target.listeners["SASL_PLAINTEXT"] = free_port()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    target.settings |= {
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": module,
    }


def add_user(broker: Broker) -> None:
    wish = alter_user_scram_credentials.ScramCredentialUpsertion(
        USER, SHA_256, ITERATIONS, SALT, SALTED
    )
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [wish])
    with wire.connect(broker.port) as connection:
        answer = wire.ask(connection, alter_user_scram_credentials, 0, request)
    wire.succeed(answer.results[0].error_code, "add a user")
