"""AlterUserScramCredentials 0, DescribeUserScramCredentials 0, SaslHandshake 0-1 and
SaslAuthenticate 0-2 on a listener where no login is due."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
    sasl_authenticate,
    sasl_handshake,
)
from headrace.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.stage import Stage


def wish(name: str = "alice", kind: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, kind, iterations, b"salt", b"\x01" * 32)


def users(stage: Stage) -> None:
    def alter(
        line: str, *wishes: ScramCredentialUpsertion, without: tuple[tuple[str, int], ...] = ()
    ) -> None:
        gone = [ScramCredentialDeletion(*each) for each in without]
        request = AlterUserScramCredentialsRequest(gone, list(wishes))
        answer = stage.ask(f"alter: {line}", alter_user_scram_credentials, 0, request)
        assert answer is not None

    def describe(line: str, *names: str, everyone: bool = False) -> None:
        asked = None if everyone else [UserName(name) for name in names]
        request = DescribeUserScramCredentialsRequest(asked)
        stage.ask(f"describe: {line}", describe_user_scram_credentials, 0, request)

    describe("nobody is there", everyone=True)
    describe("an unknown user", "alice")
    alter("nothing")
    alter("a user", wish())
    alter("the other mechanism", wish(kind=2, iterations=16384))
    alter("another user", wish("bob", 2))
    alter("too few iterations", wish("carol", iterations=4095))
    alter("too many iterations", wish("carol", iterations=16385))
    alter("no name", wish(""))
    alter("an unknown mechanism", wish("carol", 0))
    alter("another unknown mechanism", wish("carol", 3))
    alter("twice", wish("carol"), wish("carol", 2))
    alter("set and removed", wish(), without=(("alice", 1),))
    alter("removed twice", without=(("alice", 1), ("alice", 2)))
    alter("removed though not there", without=(("carol", 1),))
    alter("removed by an unknown mechanism", without=(("alice", 7),))
    alter("removed without a name", without=(("", 1),))
    stage.until(lambda: knows(stage, "bob"))
    describe("everybody", everyone=True)
    describe("one", "alice")
    describe("some", "bob", "nobody")
    describe("one twice", "bob", "bob")
    describe("an empty name", "")
    alter("removed", without=(("alice", 1), ("bob", 2)))
    stage.until(lambda: not knows(stage, "bob"))
    describe("those who are left", everyone=True)
    alter("the last one", without=(("alice", 2),))


def knows(stage: Stage, name: str) -> bool:
    request = DescribeUserScramCredentialsRequest([UserName(name)])
    answer: Any = stage.connection.ask(describe_user_scram_credentials, 0, request)
    return bool(answer.results[0].error_code == 0)


def logins_where_none_is_due(stage: Stage) -> None:
    for version in sasl_handshake.VERSIONS:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "MAGIC", ""):
            line = f"handshake v{version} {mechanism}"
            stage.ask(line, sasl_handshake, version, SaslHandshakeRequest(mechanism))
    for version in sasl_authenticate.VERSIONS:
        request = SaslAuthenticateRequest(b"\0alice\0wonder")
        stage.ask(f"authenticate v{version}", sasl_authenticate, version, request)


STORIES = (users, logins_where_none_is_due)
