"""Holes that Apache Kafka once had, by their CVE: none of them is here.

Each test does what the hole allowed, through the node's own door (`Dispatch.feed`) where it is the
wire, and looks for what must not happen.
"""

from __future__ import annotations

import ast
import base64
import gzip
import logging
import subprocess
import sys
from pathlib import Path
from struct import pack

import cramjam
import pytest

from headrace.environment import Now
from headrace.protocol import compression
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, MalformedMessage
from headrace.protocol.messages import (
    describe_configs,
    fetch,
    incremental_alter_configs,
    sasl_authenticate,
    sasl_handshake,
)
from headrace.serving.api import Refused
from headrace.serving.authentication.exchange import LoginFailed
from headrace.serving.authentication.login import Login
from headrace.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.serving.authentication.plain import Plain
from headrace.serving.authentication.scram import SHA_256, Scram, credential_of
from headrace.serving.session import Session
from tests.unit.broker.bench import Bench, build, fetch_request, values_in
from tests.unit.broker.test_acls_on_their_paths import Guarded

PACKAGE = Path(compression.__file__).parents[1]
PASSWORD = "correct horse battery staple"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "data")


def credential():
    return credential_of(SHA_256, PASSWORD, salt=b"0123456789", iterations=4096)


def scram():
    return Scram(
        SHA_256,
        lambda user, kind: credential() if user == "ann" else None,
        server_nonce="theirs",
        secret=b"made-up salts",
    )


def session_before_login():
    session = Session("10.0.0.1", "SASL_PLAINTEXT")
    session.login = Login(
        Mechanisms({"PLAIN": lambda: Plain({"ann": PASSWORD}), "SCRAM-SHA-256": scram}, Logins())
    )
    return session


# ---- CVE-2022-34917: memory by length fields before the login ----------------------------------


@pytest.mark.parametrize("size", [600 * 1024, 3 * 1024 * 1024, 99 * 1024 * 1024])
@pytest.mark.parametrize("api_key", [17, 18, 36])
def test_cve_2022_34917_no_large_frame_is_awaited_before_the_login(bench, api_key, size):
    head = pack(">ihhih", size, api_key, 0, 1, 2) + b"me"
    session = session_before_login()
    with pytest.raises(Refused):
        bench.node.dispatch.feed(session, memoryview(bytearray(head)), len(head))
    assert session.frame_size == 0, "nobody makes room for it"


@pytest.mark.parametrize("size", [2**31 - 1, 2**30, 100 * 1024 * 1024 + 1, -1, 0])
def test_cve_2022_34917_a_length_alone_is_refused(bench, size):
    head = pack(">i", size)
    with pytest.raises(Refused):
        bench.node.dispatch.feed(session_before_login(), memoryview(bytearray(head)), len(head))


def test_cve_2022_34917_lengths_inside_a_small_frame_make_no_room(bench):
    """Every place in the three requests that can be a length says two billion."""
    import tracemalloc

    frames = []
    for messages, request in (
        (sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN")),
        (sasl_authenticate, sasl_authenticate.SaslAuthenticateRequest(b"token" * 4)),
    ):
        from headrace.protocol.framing import encode_request

        for version in messages.VERSIONS:
            pieces = encode_request(messages, version, 1, "me", request)
            frames.append(b"".join(bytes(piece) for piece in pieces))
    tracemalloc.start()
    for frame in frames:
        for at in range(12, len(frame) - 4):
            attack = bytearray(frame)
            attack[at : at + 4] = b"\x7f\xff\xff\xff"
            session = session_before_login()
            try:
                bench.node.dispatch.feed(session, memoryview(attack), len(attack))
            except Refused:
                continue
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


# ---- CVE-2017-12610: acting for somebody else ---------------------------------------------------


def test_cve_2017_12610_plain_takes_no_other_identity():
    mine, now = Plain({"ann": PASSWORD, "admin": "x"}), Now(0, 0)
    with pytest.raises(LoginFailed):
        mine.step(b"\0".join((b"admin", b"ann", PASSWORD.encode())), now)
    assert mine.user is None


def test_cve_2017_12610_scram_takes_no_other_identity():
    with pytest.raises(LoginFailed):
        scram().step(b"n,a=admin,n=ann,r=mine", Now(0, 0))


# ---- CVE-2018-1288: a client that poses as a follower -------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 15, 18])
def test_cve_2018_1288_a_client_is_no_follower(bench, version):
    topic_id = bench.create("orders")
    bench.produce("orders", "a", "b")
    request = fetch_request("orders", 1)
    request.replica_id = 1
    request.replica_state = fetch.ReplicaState(1, 1)
    request.topics[0].topic_id = topic_id
    [topic] = bench.ask(fetch, request, version=version).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert not topic.partitions[0].records
    assert bench.fetch("orders").high_watermark == 2, "nothing was taken for acknowledged"
    assert values_in(bench.fetch("orders").records) == [b"a", b"b"]


# ---- CVE-2021-38153: the time that a comparison takes -------------------------------------------

SECRETS = (
    "password",
    "proof",
    "signature",
    "stored_key",
    "server_key",
    "client_key",
    "token",
    "mac",
)


def test_cve_2021_38153_no_secret_is_compared_with_equals():
    """By eye this is missed; so every comparison in the packages of the login is looked at."""
    suspects = []
    for path in (PACKAGE / "serving" / "authentication").rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(found, ast.Compare):
                continue
            if not any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in found.ops):
                continue
            for side in (found.left, *found.comparators):
                name = getattr(side, "id", getattr(side, "attr", ""))
                if any(secret in name.lower() for secret in SECRETS):
                    suspects.append(f"{path.name}:{found.lineno}: {ast.unparse(found)}")
    assert not suspects, "compare with hmac.compare_digest"


# ---- CVE-2024-56128: the nonce of SCRAM ---------------------------------------------------------


def last_message(nonce, said, password=PASSWORD):
    import hashlib
    import hmac

    known = credential()
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), known.salt, known.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
    signed = f"{said},{without}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


def test_the_right_nonce_and_password_log_in():
    mine, now = scram(), Now(0, 0)
    challenge = mine.step(b"n,,n=ann,r=mine", now).decode()
    mine.step(last_message("minetheirs", f"n=ann,r=mine,{challenge}"), now)
    assert mine.user == "ann"


@pytest.mark.parametrize("nonce", ["mine", "theirs", "minetheir", "minetheirsX", "minetheirz"])
def test_cve_2024_56128_the_nonce_must_come_back_whole(nonce):
    """With a proof that is right for the wrong nonce: only the comparison stands against it."""
    mine, now = scram(), Now(0, 0)
    challenge = mine.step(b"n,,n=ann,r=mine", now).decode()
    with pytest.raises(LoginFailed):
        mine.step(last_message(nonce, f"n=ann,r=mine,{challenge}"), now)
    assert mine.user is None


# ---- CVE-2025-27817, CVE-2023-25194: settings that read files or call out -----------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254/latest/meta-data"),
        (
            "listener.name.plaintext.plain.sasl.jaas.config",
            "com.sun.security.auth.module."
            'JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";',
        ),
        ("ssl.truststore.location", "/etc/passwd"),
        ("config.providers", "file"),
    ],
)
def test_cve_2025_27817_no_client_makes_the_node_read_or_call(bench, monkeypatch, name, value):
    """Nothing is opened and nobody is called while such a setting is offered and described."""
    touched = []
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: touched.append(a))
    monkeypatch.setattr("socket.getaddrinfo", lambda *a, **k: touched.append(a))
    change = incremental_alter_configs.AlterableConfig(name, 0, value)
    resource_ = incremental_alter_configs.AlterConfigsResource(4, "1", [change])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource_], False)
    [answer] = bench.ask(incremental_alter_configs, request).responses
    asked = describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(4, "1", None)], True, True
    )
    said = repr(
        [
            (config.name, config.value)
            for config in bench.ask(describe_configs, asked).results[0].configs
        ]
    )
    assert "root:" not in said and touched == []
    if value.startswith(("file:", "http:")):
        assert answer.error_code != 0, f"{name}={value} was taken"


# ---- bombs --------------------------------------------------------------------------------------

MB = 1024 * 1024
CLAIM_OF_GIGABYTES = {
    "gzip": (compression.GZIP, gzip.compress(bytes(64 * MB), 9)),
    "gzip in gzip members": (compression.GZIP, gzip.compress(bytes(16 * MB), 9) * 8),
    "snappy, a length of 4 GB": (compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
    "snappy in Java's framing": (
        compression.SNAPPY,
        b"\x82SNAPPY\x00" + pack(">iii", 1, 1, 25) + b"\xff\xff\xff\xff\x0f" + b"\0" * 20,
    ),
    "lz4, a content size of 2^62": (
        compression.LZ4,
        b"\x04\x22\x4d\x18\x68\x70" + (2**62).to_bytes(8, "little") + b"\x73" + bytes(8),
    ),
    "lz4": (compression.LZ4, bytes(cramjam.lz4.compress(bytes(64 * MB)))),
    "zstd": (compression.ZSTD, bytes(cramjam.zstd.compress(bytes(256 * MB)))),
    "zstd, a content size of 2^62": (
        compression.ZSTD,
        b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00",
    ),
    "zstd, a window of 2 GB": (
        compression.ZSTD,
        b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x03\x00\x00\x61",
    ),
}


@pytest.mark.parametrize("name", CLAIM_OF_GIGABYTES)
def test_bombs_are_refused(name):
    codec, data = CLAIM_OF_GIGABYTES[name]
    assert len(data) < MB
    with pytest.raises(MalformedMessage):
        compression.decompress(codec, data, 4 * MB)


def test_bombs_take_no_memory():
    """In a process of its own: what C libraries take is seen only from outside."""
    script = f"""
import resource
from headrace.protocol import compression
from headrace.protocol.errors import MalformedMessage
bombs = {list(CLAIM_OF_GIGABYTES.values())!r}
for codec, data in bombs:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        compression.decompress(codec, data, {4 * MB})
    except MalformedMessage:
        pass
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 24 * 1024, (codec, len(data), grown)
"""
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


# ---- CVE-2026-33558: secrets in logs ------------------------------------------------------------

PLANTED = "p1anted-5ecret"


def test_cve_2026_33558_planted_secrets_are_in_no_log_error_or_description(tmp_path, caplog):
    """Passwords, keys and tokens in settings, requests and logins, with every logger at DEBUG."""
    caplog.set_level(logging.DEBUG)
    bench = Bench(tmp_path / "data", headrace_audit="topic")
    answers = []
    for name in (
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.truststore.password",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config",
        "listener.name.plaintext.plain.sasl.jaas.config",
        "listener.name.plaintext.ssl.keystore.key",
        "sasl.jaas.config",
        "delegation.token.secret.key",
        "some.plugin.token",
    ):
        for operation in (0, 2):
            change = incremental_alter_configs.AlterableConfig(name, operation, PLANTED)
            of_broker = incremental_alter_configs.AlterConfigsResource(4, "1", [change])
            request = incremental_alter_configs.IncrementalAlterConfigsRequest([of_broker], False)
            answers.append(bench.ask(incremental_alter_configs, request))
    asked = describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(4, "1", None)], True, True
    )
    answers.append(bench.ask(describe_configs, asked))
    for token in (f"\0ann\0{PLANTED}", f"{PLANTED}\0ann\0{PLANTED}", PLANTED, f"\0\0{PLANTED}"):
        session = session_before_login()
        answers.append(
            bench.ask(sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN"), session=session)
        )
        request = sasl_authenticate.SaslAuthenticateRequest(token.encode())
        answers.append(bench.ask(sasl_authenticate, request, session=session))
        bench.advance(200)
        if session.outbox:
            answers.append(bench.answer_on(session, sasl_authenticate))
    bench.advance(200)
    bench.advance(200)
    trail = bench.fetch("headrace.audit").records
    assert trail, "the audit has seen the changes"
    assert PLANTED.encode() not in bytes(trail)
    assert PLANTED not in caplog.text
    for answer in answers:
        assert PLANTED not in words_in(answer), words_in(answer)[:300]


def words_in(answer) -> str:
    """Every text in an answer, however deep."""
    if isinstance(answer, list | tuple):
        return " ".join(map(words_in, answer))
    if isinstance(answer, bytes | bytearray | memoryview):
        return bytes(answer).decode("latin-1")
    slots = getattr(type(answer), "__slots__", None)
    if slots and not isinstance(answer, str | int):
        return " ".join(words_in(getattr(answer, slot)) for slot in slots)
    return str(answer)


# ---- CVE-2018-17196: produce that skips the transactional ACL -----------------------------------


def transactional_produce(bench, session, *, transactional_id, wall_ms, transactional=True):
    from headrace.protocol.messages import produce

    batch = build(
        ["x"],
        wall_ms,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
    )
    data = produce.TopicProduceData("orders", bytes(16), [produce.PartitionProduceData(0, batch)])
    request = produce.ProduceRequest(transactional_id, -1, 1_000, [data])
    answer = bench.ask(produce, request, version=12, session=session)
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("transactional_id", ["payments", None])
def test_cve_2018_17196_a_transactional_batch_needs_the_right_to_its_id(tmp_path, transactional_id):
    """Also when the request says nothing of a transaction and only the batch does."""
    bench = Guarded(tmp_path / "data")
    bench.create("orders")
    bench.allow(Operation.WRITE, "orders")
    session = bench.alice()
    wall_ms = bench.now.wall_ms
    code = transactional_produce(bench, session, transactional_id=transactional_id, wall_ms=wall_ms)
    assert code != 0
    assert bench.produce("orders", "plain", session=session).error_code == 0
    code = transactional_produce(bench, session, transactional_id=transactional_id, wall_ms=wall_ms)
    assert code != 0, "nor behind a request that is known by its first bytes"
    assert values_in(bench.fetch("orders").records) == [b"plain"]
    if transactional_id is not None:
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# ---- CVE-2026-33557: tokens that nobody checks --------------------------------------------------


def unsigned(claims, algorithm):
    import json

    parts = ({"alg": algorithm, "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join((*encoded, b"")).decode()


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "RS256", ""])
def test_cve_2026_33557_a_token_without_a_signature_is_no_token(algorithm):
    from headrace.serving.authentication.tokens import BadToken, TokenRules, Tokens, read_keys

    modulus = base64.urlsafe_b64encode(b"\xc1" + bytes(254) + b"\x03").rstrip(b"=").decode()
    keys = read_keys(f'{{"keys":[{{"kty":"RSA","kid":"r","n":"{modulus}","e":"AQAB"}}]}}')
    token = unsigned({"sub": "admin", "iat": 1, "exp": 9_999_999_999}, algorithm)
    with pytest.raises(BadToken):
        Tokens(lambda key_id: keys, TokenRules()).check(token, Now(0, 1_700_000_000_000))


def test_cve_2026_33557_without_keys_a_node_does_not_start(tmp_path):
    from headrace.server.server import Server
    from headrace.server.settings import CannotStart, load_settings

    with pytest.raises(CannotStart):
        Server(
            load_settings(
                data=str(tmp_path / "data"),
                overrides={
                    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                    "sasl.enabled.mechanisms": "OAUTHBEARER",
                },
            )
        )


def test_cve_2023_25194_no_foreign_login_module_is_loaded(tmp_path, monkeypatch):
    """JNDI was a way to make the server call anybody; here only Kafka's own mean a thing."""
    from headrace.server.server import Server
    from headrace.server.settings import CannotStart, load_settings

    module = (
        "com.sun.security.auth.module.JndiLoginModule required "
        'user.provider.url="ldap://127.0.0.1:1/x" useFirstPass="true";'
    )
    called = []
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: called.append(a))
    with pytest.raises(CannotStart):
        Server(
            load_settings(
                data=str(tmp_path / "data"),
                overrides={
                    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
                },
            )
        )
    assert called == []
