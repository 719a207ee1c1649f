"""What attackers send, for the tests of past holes: bombs, forged tokens, half-right logins.

`Attacked` is a server on real sockets with all mechanisms of SASL, to be talked to by hand.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

import cramjam
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace.node.serving.authentication.login import Login
from headrace.node.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.node.serving.authentication.plain import Plain
from headrace.node.serving.authentication.scram import SHA_256, Credential, Scram, credential_of
from headrace.node.serving.session import Session
from headrace.wire.protocol import compression
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import (
    metadata,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    seal,
)
from tests.sockets.server.a_secured_server import PLAIN_USERS, SecuredServer, ask
from tests.unit.node.broker.rig import build

PASSWORD = "correct horse battery staple"
MB = 1024 * 1024

# ---- logins --------------------------------------------------------------------------------------


def credential() -> Credential:
    return credential_of(SHA_256, PASSWORD, salt=b"0123456789", iterations=4096)


def scram() -> Scram:
    return Scram(
        SHA_256,
        lambda user, kind: credential() if user == "ann" else None,
        server_nonce="theirs",
        secret=b"made-up salts",
    )


def session_before_login() -> Session:
    session = Session("10.0.0.1", "SASL_PLAINTEXT")
    session.login = Login(
        Mechanisms({"PLAIN": lambda: Plain({"ann": PASSWORD}), "SCRAM-SHA-256": scram}, Logins())
    )
    return session


def last_message(nonce: str, said: str, known: Credential, password: str = PASSWORD) -> bytes:
    """SCRAM's proof for this nonce, whether or not it is the right one."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), known.salt, known.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
    signed = f"{said},{without}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


class Attacked(SecuredServer):
    """PLAINTEXT for who may do everything, and SASL_PLAINTEXT for who has to log in."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.key = rsa.generate_private_key(65537, 2048)
        entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [{**entry, "kid": "k"}]}))
        prefix = "listener.name.sasl_plaintext."
        settings = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            f"{prefix}plain.sasl.jaas.config": PLAIN_USERS,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "connection.failed.authentication.delay.ms": "1",
        }
        super().__init__(folder / "data", "PLAINTEXT", "SASL_PLAINTEXT", **settings)

    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def login(self, mechanism: str, *tokens: bytes) -> tuple[list[int], bytes, bool]:
        """Error codes of the tokens, the last answer, and whether requests are taken then."""
        codes, heard = [], b""
        with self.connect("SASL_PLAINTEXT") as client:
            said(client, sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest(mechanism))
            for token in tokens:
                request = sasl_authenticate.SaslAuthenticateRequest(token)
                answer = said(client, sasl_authenticate, 1, request)
                codes.append(answer.error_code)
                heard = answer.auth_bytes
            try:
                said(client, metadata, 1, metadata.MetadataRequest(None))
            except OSError:
                return codes, heard, False
        return codes, heard, True


def said(client: socket.socket, messages: Any, version: int, request: Any) -> Any:
    """The answer to a request on a socket."""
    pieces = encode_request(messages, version, 1, "me", request)
    heard = ask(client, b"".join(bytes(piece) for piece in pieces))
    return decode_response(messages, version, memoryview(heard))[1]


# ---- tokens --------------------------------------------------------------------------------------


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def unsigned(claims: Any, algorithm: str, **header: Any) -> str:
    parts = ({"alg": algorithm, "typ": "JWT", **header}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join((*encoded, b"")).decode()


def signed_with_the_public_key(claims: Any, pem: bytes, kid: str) -> str:
    """HS256, whose secret is what everybody may know: the library itself refuses to make one."""
    head = unsigned(claims, "HS256", kid=kid).removesuffix(".")
    mac = hmac.digest(pem, head.encode(), "sha256")
    return f"{head}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


@contextlib.contextmanager
def somebody_who_listens() -> Iterator[tuple[str, list[int]]]:
    """A URL, and in the list a 1 for each time that somebody came; look when the block is over."""
    called: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/keys", called
        server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            server.accept()[0].close()
            called.append(1)


# ---- records -------------------------------------------------------------------------------------


def transactional_produce(
    rig: Any, session: Any, *, transactional_id: str | None, wall_ms: int
) -> int:
    batch = build(
        ["x"], wall_ms, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    data = produce.TopicProduceData("orders", bytes(16), [produce.PartitionProduceData(0, batch)])
    request = produce.ProduceRequest(transactional_id, -1, 1_000, [data])
    answer = rig.ask(produce, request, version=12, session=session)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


CLAIMS_OF_GIGABYTES: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (compression.GZIP, lambda: gzip.compress(bytes(64 * MB), 9)),
    "gzip in gzip members": (compression.GZIP, lambda: gzip.compress(bytes(16 * MB), 9) * 8),
    "snappy, a length of 4 GB": (compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
    "snappy in Java's framing": (
        compression.SNAPPY,
        lambda: b"\x82SNAPPY\x00" + pack(">iii", 1, 1, 25) + b"\xff\xff\xff\xff\x0f" + b"\0" * 20,
    ),
    "lz4, a content size of 2^62": (
        compression.LZ4,
        lambda: b"\x04\x22\x4d\x18\x68\x70" + (2**62).to_bytes(8, "little") + b"\x73" + bytes(8),
    ),
    "lz4": (compression.LZ4, lambda: bytes(cramjam.lz4.compress(bytes(64 * MB)))),
    "zstd": (compression.ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(256 * MB)))),
    "zstd, a content size of 2^62": (
        compression.ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00",
    ),
    "zstd, a window of 2 GB": (
        compression.ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x03\x00\x00\x61",
    ),
}


def claim_of_gigabytes(name: str) -> tuple[int, bytes]:
    """A codec and what it is to unpack; made when asked for, as some take half a second."""
    codec, made = CLAIMS_OF_GIGABYTES[name]
    return codec, made()


def words_in(answer: Any) -> str:
    """Every text in an answer, however deep."""
    if isinstance(answer, list | tuple):
        return " ".join(map(words_in, answer))
    if isinstance(answer, bytes | bytearray | memoryview):
        return bytes(answer).decode("latin-1")
    slots = getattr(type(answer), "__slots__", None)
    if slots and not isinstance(answer, str | int):
        return " ".join(words_in(getattr(answer, slot)) for slot in slots)
    return str(answer)


def length_of(size: int) -> bytes:
    return struct.pack(">i", size)


def batch_around(codec: int, payload: bytes, wall_ms: int) -> bytes:
    """One record is announced, the checksum is right, and the payload is what it is."""
    batch = bytearray(build(["x"], wall_ms))
    batch[HEADER_SIZE:] = payload
    batch[LENGTH_AT:LEADER_EPOCH_AT] = length_of(len(batch) - LENGTH_OVERHEAD)
    batch[ATTRIBUTES_AT + 1] |= codec
    seal(batch)
    return bytes(batch)
