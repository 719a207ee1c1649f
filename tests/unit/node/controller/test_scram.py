"""Decisions about SCRAM credentials, and what is told of them."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from headrace.node.controller.scram import alter
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SALTED = b"\x01" * 32
NOBODY = MetadataImage(cluster_id="c")


def upsertion(
    name: str = "alice", kind: int = 1, iterations: int = 4096
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, kind, iterations, b"salt", SALTED)


def decide(
    image: MetadataImage, *wishes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> tuple[MetadataImage, dict[str, int]]:
    request = AlterUserScramCredentialsRequest(
        [wish for wish in wishes if isinstance(wish, ScramCredentialDeletion)],
        [wish for wish in wishes if isinstance(wish, ScramCredentialUpsertion)],
    )
    decision = alter(image, request)
    after = image.apply(decision.records, offset=1, epoch=1, wall_ms=0)
    for result in decision.response.results:
        assert (result.error_message is None) is (result.error_code == 0)
    return after, {result.user: result.error_code for result in decision.response.results}


def test_only_keys_are_kept_that_the_password_does_not_follow_from() -> None:
    image, codes = decide(NOBODY, upsertion())
    assert codes == {"alice": 0}
    kept = image.scram_credentials["alice", 1]
    client_key = hmac.digest(SALTED, b"Client Key", "sha256")
    assert kept.stored_key == hashlib.sha256(client_key).digest()
    assert kept.server_key == hmac.digest(SALTED, b"Server Key", "sha256")
    assert (kept.salt, kept.iterations) == (b"salt", 4096)
    assert SALTED not in (kept.stored_key, kept.server_key)


def test_a_user_may_have_both_mechanisms_and_lose_one() -> None:
    image, _ = decide(NOBODY, upsertion())
    image, _ = decide(image, upsertion(kind=2))
    assert set(image.scram_credentials) == {("alice", 1), ("alice", 2)}
    image, codes = decide(image, ScramCredentialDeletion("alice", 1))
    assert codes == {"alice": 0} and set(image.scram_credentials) == {("alice", 2)}


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(kind=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(kind=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion("alice", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_refusals_change_nothing(
    wish: ScramCredentialDeletion | ScramCredentialUpsertion, code: ErrorCode
) -> None:
    image, codes = decide(NOBODY, wish, upsertion("bob"))
    assert codes == {wish.name: code, "bob": 0}
    assert set(image.scram_credentials) == {("bob", 1)}


def test_a_user_who_is_named_twice_is_not_changed() -> None:
    image, codes = decide(NOBODY, upsertion(), upsertion(kind=2), upsertion("bob"))
    assert codes == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": 0}
    assert set(image.scram_credentials) == {("bob", 1)}
