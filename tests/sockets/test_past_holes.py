"""Holes that Apache Kafka once had, by their CVE: none of them is here.

Each test does what the hole allowed, through the node's own door (`Dispatch.feed`, or a socket) and
looks for what must not happen. What attackers send is in `attacks.py`.
"""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from struct import pack

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace.environment import Now
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import CannotStart, load_settings
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.authentication.exchange import LoginFailed
from headrace.node.serving.authentication.plain import Plain
from headrace.wire.protocol import compression
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import (
    describe_configs,
    fetch,
    incremental_alter_configs,
    sasl_authenticate,
    sasl_handshake,
)
from tests.sockets.attacks import (
    CLAIMS_OF_GIGABYTES,
    MB,
    PASSWORD,
    Attacked,
    batch_around,
    bearer,
    claim_of_gigabytes,
    credential,
    last_message,
    length_of,
    said,
    scram,
    session_before_login,
    signed_with_the_public_key,
    somebody_who_listens,
    transactional_produce,
    unsigned,
    words_in,
)
from tests.sockets.server.a_secured_server import is_closed
from tests.unit.node.broker.guarded_rig import Guarded
from tests.unit.node.broker.rig import Rig, fetch_request, values_in

PACKAGE = Path(compression.__file__).parents[1]
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path / "data")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    with Attacked(tmp_path_factory.mktemp("attacked") / "server") as server:
        yield server


# ---- CVE-2022-34917: memory by length fields before the login ----------------------------------


@pytest.mark.parametrize("size", [600 * 1024, 3 * 1024 * 1024, 99 * 1024 * 1024])
@pytest.mark.parametrize("api_key", [17, 18, 36])
def test_cve_2022_34917_no_large_frame_is_awaited_before_the_login(rig, api_key, size):
    head = pack(">ihhih", size, api_key, 0, 1, 2) + b"me"
    session = session_before_login()
    with pytest.raises(ClosesConnection):
        rig.node.dispatch.feed(session, memoryview(bytearray(head)), len(head))
    assert session.frame_size == 0, "nobody makes room for it"


@pytest.mark.parametrize("size", [2**31 - 1, 2**30, 100 * 1024 * 1024 + 1, -1, 0])
def test_cve_2022_34917_a_length_alone_is_refused(rig, size):
    head = length_of(size)
    with pytest.raises(ClosesConnection):
        rig.node.dispatch.feed(session_before_login(), memoryview(bytearray(head)), len(head))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [2**31 - 1, 99 * MB, 600 * 1024, -1])
def test_cve_2022_34917_on_a_socket_the_connection_ends(attacked, version, size):
    """Before the handshake and between its tokens, which after version 0 have no header."""
    with attacked.connect("SASL_PLAINTEXT") as client:
        client.sendall(length_of(size) + pack(">hh", 18, 0))
        assert is_closed(client)
    with attacked.connect("SASL_PLAINTEXT") as client:
        said(client, sasl_handshake, version, sasl_handshake.SaslHandshakeRequest("PLAIN"))
        client.sendall(length_of(size) + pack(">hh", 36, 0))
        assert is_closed(client)
    assert not attacked.server.loop._held_bytes


def test_cve_2022_34917_lengths_inside_a_small_frame_make_no_room(rig):
    """Every place in the three requests that can be a length says two billion."""
    import tracemalloc

    frames = []
    for messages, request in (
        (sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN")),
        (sasl_authenticate, sasl_authenticate.SaslAuthenticateRequest(b"token" * 4)),
    ):
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
                rig.node.dispatch.feed(session, memoryview(attack), len(attack))
            except ClosesConnection:
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


def test_cve_2017_12610_nor_on_a_socket(attacked):
    assert attacked.login("PLAIN", b"\0alice\0wonder") == ([0], b"", True)
    assert attacked.login("PLAIN", b"alice\0alice\0wonder") == ([0], b"", True)
    assert attacked.login("PLAIN", b"bob\0alice\0wonder") == ([FAILED], b"", False)
    assert attacked.login("SCRAM-SHA-256", b"n,a=bob,n=alice,r=x") == ([FAILED], b"", False)


# ---- CVE-2018-1288: a client that poses as a follower -------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 15, 18])
def test_cve_2018_1288_a_client_is_no_follower(rig, version):
    topic_id = rig.create("orders")
    rig.produce("orders", "a", "b")
    request = as_follower(topic_id)
    [topic] = rig.ask(fetch, request, version=version).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert not topic.partitions[0].records
    assert rig.fetch("orders").high_watermark == 2, "nothing was taken for acknowledged"
    assert values_in(rig.fetch("orders").records) == [b"a", b"b"]


def as_follower(topic_id):
    request = fetch_request("orders", 1)
    request.replica_id = 1
    request.replica_state = fetch.ReplicaState(1, 1)
    request.topics[0].topic_id = topic_id
    return request


def test_cve_2018_1288_who_may_read_may_not_replicate(tmp_path):
    rig = Guarded(tmp_path / "data")
    topic_id = rig.create("orders")
    rig.allow(Operation.READ, "orders")
    [topic] = rig.ask(fetch, as_follower(topic_id), session=rig.alice()).responses
    assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- CVE-2021-38153: the time that a comparison takes -------------------------------------------

SECRETS = ("password", "proof", "signature", "stored_key", "server_key", "client_key", "token")


def test_cve_2021_38153_no_secret_is_compared_with_equals():
    """By eye this is missed: every comparison is looked at, those of the login most closely."""
    suspects = []
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "messages":
            continue
        text = path.read_text("utf-8")
        if not any(secret in text.lower() for secret in SECRETS):
            continue  # no name in it can be one
        for found in ast.walk(ast.parse(text)):
            if not isinstance(found, ast.Compare):
                continue
            if not any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in found.ops):
                continue
            for side in (found.left, *found.comparators):
                name = getattr(side, "id", getattr(side, "attr", "")).lower()
                within = name if path.parent.name == "authentication" else name.split("_")
                if any(secret in within for secret in SECRETS):
                    suspects.append(f"{path.name}:{found.lineno}: {ast.unparse(found)}")
    assert not suspects, "compare with hmac.compare_digest"


# ---- CVE-2024-56128: the nonce of SCRAM ---------------------------------------------------------


def test_the_right_nonce_and_password_log_in():
    mine, now = scram(), Now(0, 0)
    challenge = mine.step(b"n,,n=ann,r=mine", now).decode()
    mine.step(last_message("minetheirs", f"n=ann,r=mine,{challenge}", credential()), now)
    assert mine.user == "ann"


@pytest.mark.parametrize("nonce", ["mine", "theirs", "minetheir", "minetheirsX", "minetheirz"])
def test_cve_2024_56128_the_nonce_must_come_back_whole(nonce):
    """With a proof that is right for the wrong nonce: only the comparison stands against it."""
    mine, now = scram(), Now(0, 0)
    challenge = mine.step(b"n,,n=ann,r=mine", now).decode()
    with pytest.raises(LoginFailed):
        mine.step(last_message(nonce, f"n=ann,r=mine,{challenge}", credential()), now)
    assert mine.user is None


def test_cve_2024_56128_the_servers_part_is_new_each_time(attacked):
    """Otherwise what was heard of one login would open the next."""
    heard = {attacked.login("SCRAM-SHA-256", b"n,,n=alice,r=mine")[1] for _ in range(3)}
    nonces = {challenge.split(b",")[0] for challenge in heard}
    assert len(nonces) == 3 and all(len(nonce) > len(b"r=mine") + 24 for nonce in nonces)


# ---- CVE-2025-27817, CVE-2023-25194: settings that read files or call out -----------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254/latest/meta-data"),
        ("listener.name.plaintext.sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("listener.name.plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "file:///x"),
        (
            "listener.name.plaintext.plain.sasl.jaas.config",
            "com.sun.security.auth.module."
            'JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";',
        ),
        ("ssl.truststore.location", "/etc/passwd"),
        ("config.providers", "file"),
        ("ssl.cipher.suites", "${file:/etc/passwd:root}"),
    ],
)
def test_cve_2025_27817_no_client_makes_the_node_read_or_call(rig, monkeypatch, name, value):
    """Nothing is opened and nobody is called while such a setting is offered and described."""
    touched = []
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: touched.append(a))
    monkeypatch.setattr("socket.getaddrinfo", lambda *a, **k: touched.append(a))
    answer, told = offer_setting(rig, name, value)
    assert "root:" not in repr(told) and touched == []
    if value.startswith(("file:", "http:")):
        assert answer.error_code != 0, f"{name}={value} was taken"
    elif "${" in value and answer.error_code == 0:
        assert told[name] == value, "a text is a text: there are no providers of settings"


def offer_setting(rig, name, value):
    """What a client is answered that sets it for this broker, and what it is then shown."""
    change = incremental_alter_configs.AlterableConfig(name, 0, value)
    resource = incremental_alter_configs.AlterConfigsResource(4, "1", [change])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
    [answer] = rig.ask(incremental_alter_configs, request).responses
    wanted = describe_configs.DescribeConfigsResource(4, "1", None)
    asked = describe_configs.DescribeConfigsRequest([wanted], True, True)
    [described] = rig.ask(describe_configs, asked).results
    return answer, {config.name: config.value for config in described.configs}


def test_cve_2025_27817_keys_of_tokens_are_named_by_the_operator_only(attacked):
    """On a node that does check tokens: the URL is not taken, and nobody is called."""
    with somebody_who_listens() as (url, called), attacked.connect("PLAINTEXT") as client:
        door = "listener.name.sasl_plaintext."
        for prefix in ("", door, f"{door}oauthbearer."):
            name = f"{prefix}sasl.oauthbearer.jwks.endpoint.url"
            change = incremental_alter_configs.AlterableConfig(name, 0, url)
            resource = incremental_alter_configs.AlterConfigsResource(4, "1", [change])
            request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
            [answer] = said(client, incremental_alter_configs, 1, request).responses
            assert answer.error_code != 0, name
    assert not called


def test_cve_2023_25194_no_foreign_login_module_is_loaded(tmp_path, monkeypatch):
    """JNDI was a way to make the server call anybody; here only Kafka's own mean a thing."""
    module = (
        "com.sun.security.auth.module.JndiLoginModule required "
        'user.provider.url="ldap://127.0.0.1:1/x" useFirstPass="true";'
    )
    called = []
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: called.append(a))
    with pytest.raises(CannotStart):
        a_server_with(
            tmp_path, "PLAIN", {"listener.name.sasl_plaintext.plain.sasl.jaas.config": module}
        )
    assert called == []


def a_server_with(folder, mechanism, more):
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": mechanism,
    }
    return Server(load_settings(data=str(folder / "data"), overrides=given | more))


# ---- bombs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLAIMS_OF_GIGABYTES)
def test_bombs_are_refused(name):
    codec, data = claim_of_gigabytes(name)
    assert len(data) < MB
    with pytest.raises(MalformedMessage):
        compression.decompress(codec, data, 4 * MB)


@pytest.mark.parametrize(("claim", "said"), [(5 * MB, "more than"), (3 * MB, "cannot hold")])
def test_a_claim_of_snappy_is_not_put_to_the_test(monkeypatch, claim, said):
    """The library has a check of its own; ours comes first, before any memory is set aside."""
    monkeypatch.setattr("cramjam.snappy.decompress_raw", lambda data: pytest.fail("was asked"))
    block = bytearray()
    while claim > 127:
        block.append(claim & 127 | 128)
        claim >>= 7
    block.append(claim)
    with pytest.raises(MalformedMessage, match=said):
        compression.decompress(compression.SNAPPY, bytes(block) + bytes(20), 4 * MB)


@pytest.mark.parametrize("name", [n for n in CLAIMS_OF_GIGABYTES if "2^62" in n or "snappy" in n])
def test_bombs_in_batches_are_refused_where_records_are_looked_at(rig, name):
    """On topics that compact, and on those with a codec of their own; the log stays empty."""
    codec, payload = claim_of_gigabytes(name)
    rig.create("compacted", cleanup_policy="compact")
    rig.create("recompressed", compression_type="gzip")

    for topic in ("compacted", "recompressed"):
        batch = batch_around(codec, payload, rig.now.wall_ms)
        assert rig.produce(topic, records=batch).error_code != 0
        assert rig.fetch(topic).high_watermark == 0


# ---- CVE-2026-33558: secrets in logs ------------------------------------------------------------

PLANTED = "p1anted-5ecret"


def test_cve_2026_33558_planted_secrets_are_in_no_log_error_or_description(tmp_path, caplog):
    """Passwords, keys and tokens in settings, requests and logins, with every logger at DEBUG."""
    caplog.set_level(logging.DEBUG)
    rig = Rig(tmp_path / "data", headrace_audit="topic")
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
            answers.append(rig.ask(incremental_alter_configs, request))
    asked = describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(4, "1", None)], True, True
    )
    answers.append(rig.ask(describe_configs, asked))
    for token in (f"\0ann\0{PLANTED}", f"{PLANTED}\0ann\0{PLANTED}", PLANTED, f"\0\0{PLANTED}"):
        session = session_before_login()
        answers.append(
            rig.ask(sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN"), session=session)
        )
        request = sasl_authenticate.SaslAuthenticateRequest(token.encode())
        answers.append(rig.ask(sasl_authenticate, request, session=session))
        rig.advance(200)
        if session.outbox:
            answers.append(rig.answer_on(session, sasl_authenticate))
    rig.advance(200)
    rig.advance(200)
    trail = rig.fetch("headrace.audit").records
    assert trail, "the audit has seen the changes"
    assert PLANTED.encode() not in bytes(trail)
    assert PLANTED not in caplog.text
    for answer in answers:
        assert PLANTED not in words_in(answer), words_in(answer)[:300]


# ---- CVE-2018-17196: produce that skips the transactional ACL -----------------------------------


@pytest.mark.parametrize("transactional_id", ["payments", None])
def test_cve_2018_17196_a_transactional_batch_needs_the_right_to_its_id(tmp_path, transactional_id):
    """Also when the request says nothing of a transaction and only the batch does."""
    rig = Guarded(tmp_path / "data")
    rig.create("orders")
    rig.allow(Operation.WRITE, "orders")
    session = rig.alice()
    wall_ms = rig.now.wall_ms
    code = transactional_produce(rig, session, transactional_id=transactional_id, wall_ms=wall_ms)
    assert code != 0
    assert rig.produce("orders", "plain", session=session).error_code == 0
    code = transactional_produce(rig, session, transactional_id=transactional_id, wall_ms=wall_ms)
    assert code != 0, "nor behind a request that is known by its first bytes"
    assert values_in(rig.fetch("orders").records) == [b"plain"]
    if transactional_id is not None:
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# ---- CVE-2026-33557: tokens that nobody checks --------------------------------------------------

CLAIMS = {"sub": "alice", "iat": 1, "exp": 9_999_999_999}


def test_cve_2026_33557_a_good_token_opens(attacked):
    token = jwt.encode(CLAIMS, attacked.key, "RS256", headers={"kid": "k"})
    assert attacked.login("OAUTHBEARER", bearer(token)) == ([0], b"", True)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "RS256", "ES256", ""])
def test_cve_2026_33557_a_token_without_a_signature_is_no_token(attacked, algorithm):
    refused(attacked, unsigned(CLAIMS, algorithm, kid="k"))
    refused(attacked, unsigned(CLAIMS, algorithm))


def test_cve_2026_33557_the_public_key_is_no_shared_secret(attacked):
    refused(attacked, signed_with_the_public_key(CLAIMS, attacked.public_pem(), "k"))


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "kid"])
def test_cve_2026_33557_a_token_does_not_say_where_its_key_is(attacked, name):
    """Signed by the attacker, whose key is in the header or at a URL: nobody looks there."""
    theirs = rsa.generate_private_key(65537, 2048)
    with somebody_who_listens() as (url, called):
        values = {"jwk": jwt.algorithms.RSAAlgorithm.to_jwk(theirs.public_key(), as_dict=True)}
        header = {"kid": "k", name: values.get(name, url)}
        refused(attacked, jwt.encode(CLAIMS, theirs, "RS256", headers=header))
    assert not called


def refused(attacked, token):
    codes, heard, is_open = attacked.login("OAUTHBEARER", bearer(token), b"\x01")
    assert codes[-1] == FAILED and not is_open and b"alice" not in heard


def test_cve_2026_33557_without_keys_a_node_does_not_start(tmp_path):
    with pytest.raises(CannotStart):
        a_server_with(tmp_path, "OAUTHBEARER", {})
