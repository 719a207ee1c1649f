"""Which tokens are good, and the login that shows them."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import LoginFailed
from headrace.node.serving.authentication.oauthbearer import REFUSAL, OAuthBearer
from headrace.node.serving.authentication.tokens import (
    BadToken,
    Key,
    MalformedKeys,
    TokenRules,
    Tokens,
    read_keys,
)

NOW_S = 1_800_000_000
NOW = Now(0, NOW_S * 1000)
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RULES = TokenRules(issuer="https://login.example", audiences=("kafka", "other"))
GOOD = {
    "sub": "alice",
    "iss": "https://login.example",
    "aud": "kafka",
    "iat": NOW_S - 10,
    "exp": NOW_S + 300,
}


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    kinds: dict[Any, Any] = {
        rsa.RSAPublicKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePublicKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PublicKey: jwt.algorithms.OKPAlgorithm,
    }
    (algorithm,) = [each for kind, each in kinds.items() if isinstance(key, kind)]
    return {**json.loads(algorithm.to_jwk(key)), **more}


def key_set(*entries: dict[str, Any]) -> str:
    return json.dumps({"keys": list(entries)})


KEYS = read_keys(
    key_set(
        jwk(RSA.public_key(), kid="r"),
        jwk(EC.public_key(), kid="e", alg="ES256", use="sig"),
        jwk(ED.public_key(), kid="d"),
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
        {"kty": "magic"},
    )
)


def tokens(rules: TokenRules = RULES, keys: list[Key] | None = None) -> Tokens:
    return Tokens(lambda key_id: KEYS if keys is None else keys, rules)


def signed(
    claims: dict[str, Any], key: Any = RSA, alg: str = "RS256", kid: str | None = "r"
) -> str:
    return jwt.encode(claims, key, alg, headers={} if kid is None else {"kid": kid})


def check(token: str, rules: TokenRules = RULES) -> tuple[str, int]:
    return tokens(rules).check(token, NOW)


@pytest.mark.parametrize(
    ("key", "alg", "kid"),
    [
        (RSA, "RS256", "r"),
        (RSA, "RS512", "r"),
        (RSA, "PS256", "r"),
        (EC, "ES256", "e"),
        (ED, "EdDSA", "d"),
        (RSA, "RS256", None),
    ],
)
def test_a_good_token_names_its_user_and_its_end(key: Any, alg: str, kid: str | None) -> None:
    assert check(signed(GOOD, key, alg, kid)) == ("alice", (NOW_S + 300) * 1000)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": -5}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": NOW_S + 31}, "does not hold yet"),
        ({"nbf": NOW_S + 31}, "does not hold yet"),
        ({"nbf": "x"}, "nbf"),
        ({"iss": "https://elsewhere"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [1, "another"]}, "audience"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": 7}, "names no user"),
    ],
)
def test_a_token_with_something_wrong(change: dict[str, Any], said: str) -> None:
    claims = {name: value for name, value in (GOOD | change).items() if value is not None}
    encoded = base64.urlsafe_b64encode
    # By hand where the library itself would not write such claims.
    head = encoded(json.dumps({"alg": "RS256", "kid": "r"}).encode()).rstrip(b"=")
    body = encoded(json.dumps(claims).encode()).rstrip(b"=")
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(
        head + b"." + body, RSA
    )
    token = b".".join((head, body, encoded(signature).rstrip(b"="))).decode()
    with pytest.raises(BadToken, match=said):
        check(token)


@pytest.mark.parametrize("change", [{"aud": ["x", "other"]}, {"exp": NOW_S - 29}, {"extra": 1}])
def test_what_does_not_matter(change: dict[str, Any]) -> None:
    assert check(signed(GOOD | change))[0] == "alice"


def test_another_claim_may_name_the_user() -> None:
    rules = TokenRules(user_claim="client_id")
    claims = {"client_id": "shop", "iat": NOW_S, "exp": NOW_S + 1}
    assert check(signed(claims), rules)[0] == "shop"


# ---- signatures


def test_nobodys_signature_is_no_signature() -> None:
    """CVE-2026-33557: tokens that were taken without a check."""
    with pytest.raises(BadToken):
        check(jwt.encode(GOOD, None, "none"))
    head, body, _ = signed(GOOD).split(".")
    with pytest.raises(BadToken):
        check(f"{head}.{body}.")


def test_a_public_key_is_no_shared_secret() -> None:
    """The oldest trick: HS256 with the public key, which everybody has, as the secret."""
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    import hashlib
    import hmac

    encoded = base64.urlsafe_b64encode
    head = encoded(json.dumps({"alg": "HS256", "kid": "r"}).encode()).rstrip(b"=")
    body = encoded(json.dumps(GOOD).encode()).rstrip(b"=")
    forged = hmac.digest(pem, head + b"." + body, hashlib.sha256)
    with pytest.raises(BadToken):
        check(b".".join((head, body, encoded(forged).rstrip(b"="))).decode())
    with pytest.raises(BadToken):
        check(jwt.encode(GOOD, b"secret" * 8, "HS256", headers={"kid": "shared"}))


@pytest.mark.parametrize(
    "token",
    [
        signed(GOOD, rsa.generate_private_key(65537, 2048)),
        signed(GOOD, RSA, kid="e"),
        signed(GOOD, RSA, kid="unknown"),
        signed(GOOD, ec.generate_private_key(ec.SECP256R1()), "ES256", "e"),
        "",
        "a.b.c",
        "a.b",
        "." * 10_000,
    ],
)
def test_other_keys_and_no_tokens_at_all(token: str) -> None:
    with pytest.raises(BadToken):
        check(token)


def test_a_body_that_was_changed() -> None:
    head, _, signature = signed(GOOD).split(".")
    body = signed(GOOD | {"sub": "admin"}).split(".")[1]
    with pytest.raises(BadToken, match="no known key"):
        check(f"{head}.{body}.{signature}")


# ---- keys


def test_keys_in_pem() -> None:
    def pem(key: Any) -> str:
        return str(
            key.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ).decode()
        )

    keys = read_keys("# ours\n" + pem(RSA.public_key()) + pem(EC.public_key()))
    assert tokens(keys=keys).check(signed(GOOD, EC, "ES256", None), NOW)[0] == "alice"
    assert tokens(keys=keys).check(signed(GOOD, RSA, "RS256", "any"), NOW)[0] == "alice"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": 5}',
        '{"keys": [5]}',
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
    ],
)
def test_what_is_no_set_of_keys(text: str) -> None:
    with pytest.raises(MalformedKeys):
        read_keys(text)


# ---- the login


def first(token: str, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@pytest.mark.parametrize("header", ["n,,", "n,a=alice,"])
def test_a_login(header: str) -> None:
    login = OAuthBearer(tokens())
    assert login.step(first(signed(GOOD), header, "trace=7\x01"), NOW) == b""
    assert (login.user, login.ends_wall_ms) == ("alice", (NOW_S + 300) * 1000)


def test_a_bad_token_is_answered_in_json_and_then_the_login_is_over() -> None:
    login = OAuthBearer(tokens())
    assert login.step(first(signed(GOOD | {"exp": NOW_S - 99})), NOW) == REFUSAL.encode()
    with pytest.raises(LoginFailed, match="expired") as failure:
        login.step(b"\x01", NOW)
    assert failure.value.told == REFUSAL
    assert login.user is None


def test_nothing_helps_after_a_bad_token() -> None:
    login = OAuthBearer(tokens())
    login.step(first("a.b.c"), NOW)
    with pytest.raises(LoginFailed):
        login.step(first(signed(GOOD)), NOW)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,auth=Bearer abc",
        b"\xff" * 100,
        b"n,,\x01auth=Bearer " + b"x" * 70_000 + b"\x01\x01",
    ],
)
def test_what_is_no_first_message(said: bytes) -> None:
    with pytest.raises(LoginFailed):
        OAuthBearer(tokens()).step(said, NOW)


def test_nobody_acts_for_another_user() -> None:
    with pytest.raises(LoginFailed, match="another user"):
        OAuthBearer(tokens()).step(first(signed(GOOD), "n,a=admin,"), NOW)
