"""What a session may send before, during and after its login."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from headrace.node.broker.handlers import sasl_authenticate, sasl_handshake
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.authentication.login import Login, Phase
from headrace.node.serving.authentication.mechanisms import Logins, LoginSeen, Mechanisms
from headrace.node.serving.authentication.plain import Plain
from headrace.node.serving.principal import ANONYMOUS, Principal
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import api_versions, metadata
from headrace.wire.protocol.messages import sasl_authenticate as authenticate_messages
from headrace.wire.protocol.messages import sasl_handshake as handshake_messages
from tests.unit.node.serving.conversation import Conversation, frame

API_VERSIONS, METADATA, HANDSHAKE, AUTHENTICATE = 18, 3, 17, 36
USERS = {"alice": "wonder", "bob": "builder"}
ALICE = b"\0alice\0wonder"


class Expiring(Plain):
    """A mechanism whose credentials end."""

    def step(self, token: bytes, now: Any) -> bytes:
        self.ends_wall_ms = 50_000
        return super().step(token, now)


class Talk(Conversation):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            {
                api_versions: lambda owner, request, call: api_versions.ApiVersionsResponse(),
                metadata: lambda owner, request, call: metadata.MetadataResponse(),
                handshake_messages: sasl_handshake.handle,
                authenticate_messages: sasl_authenticate.handle,
            }
        )
        self.seen: list[LoginSeen] = []
        self.mechanisms = Mechanisms(
            begin={"PLAIN": lambda: Plain(USERS), "EXPIRING": lambda: Expiring(USERS)},
            logins=Logins(watchers=[self.seen.append]),
            largest_bytes=1000,
            **options,
        )
        self.session.login = Login(self.mechanisms)

    def at(self, monotonic_ms: int) -> None:
        self.dispatch.now.monotonic_ms = monotonic_ms
        self.purgatory.expire(monotonic_ms)

    def handshake(self, mechanism: bytes = b"PLAIN", version: int = 1) -> Any:
        self.send(frame(HANDSHAKE, version, pack(">h", len(mechanism)) + mechanism))
        return self.answer(handshake_messages.DECODE_RESPONSE[version])

    def authenticate(self, token: bytes, version: int = 1) -> Any:
        self.send(frame(AUTHENTICATE, version, pack(">i", len(token)) + token))
        return self.answer(authenticate_messages.DECODE_RESPONSE[version])

    def answer(self, decode: Any) -> Any:
        replies = self.replies()
        if not replies:
            return None
        ((_, body),) = replies
        return decode(memoryview(body), 0)[0]

    def ask_metadata(self) -> None:
        self.send(frame(METADATA, 1, pack(">i", -1)))
        assert len(self.replies()) == 1


def test_a_login() -> None:
    talk = Talk()
    talk.send(frame(API_VERSIONS, 0))
    assert len(talk.replies()) == 1
    offer = talk.handshake()
    assert (offer.error_code, offer.mechanisms) == (0, ["PLAIN", "EXPIRING"])
    assert talk.session.principal == ANONYMOUS
    answer = talk.authenticate(ALICE)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0)
    assert talk.session.principal == Principal("User", "alice")
    assert talk.session.login is None, "from here on it costs nothing"
    talk.ask_metadata()
    assert [(seen.user, seen.mechanism, seen.failure) for seen in talk.seen] == [
        ("alice", "PLAIN", None)
    ]
    assert talk.mechanisms.logins.succeeded == {"PLAIN": 1}


@pytest.mark.parametrize("key", [METADATA, AUTHENTICATE, 0, 1, 22])
def test_nothing_else_is_taken_before_the_handshake(key: int) -> None:
    talk = Talk()
    with pytest.raises(ClosesConnection, match="before the login"):
        talk.send(frame(key, 0))


@pytest.mark.parametrize("key", [API_VERSIONS, HANDSHAKE])
def test_nothing_but_tokens_is_taken_after_it(key: int) -> None:
    """The answer is as late as that to a wrong password, and then the connection ends."""
    talk = Talk(failure_delay_ms=50)
    talk.handshake()
    talk.send(frame(key, 0, pack(">h", 5) + b"PLAIN"))
    assert talk.replies() == [] and talk.session.muted
    talk.at(50)
    ((_, body),) = talk.replies()
    assert body[:2] == pack(">h", ErrorCode.ILLEGAL_SASL_STATE)
    assert talk.session.closing and talk.session.principal == ANONYMOUS


def test_metadata_in_the_middle_of_a_login_tells_it_of_each_topic() -> None:
    """So kafkajs learns that its token was refused."""
    talk = Talk(failure_delay_ms=0)
    talk.handshake()
    talk.send(frame(METADATA, 1, pack(">ih", 1, 6) + b"orders"))
    talk.at(0)
    answer = talk.answer(metadata.DECODE_RESPONSE[1])
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.ILLEGAL_SASL_STATE)
    ]
    assert talk.session.closing


@pytest.mark.parametrize("data", [frame(0, 0), frame(METADATA, 99), frame(METADATA, 1, b"\xff")])
def test_what_is_not_served_or_cannot_be_read_ends_it_at_once(data: bytes) -> None:
    talk = Talk()
    talk.handshake()
    with pytest.raises(ClosesConnection):
        talk.send(data)


def test_a_long_frame_is_refused_by_its_first_bytes() -> None:
    """CVE-2022-34917: memory was set aside for whatever length a stranger named."""
    talk = Talk()
    with pytest.raises(ClosesConnection, match="at most 1000"):
        talk.send(pack(">ihh", 1001, HANDSHAKE, 1))
    talk = Talk()
    talk.handshake()
    with pytest.raises(ClosesConnection, match="at most 1000"):
        talk.send(pack(">ihh", 90_000, AUTHENTICATE, 1))


def test_a_failed_login_is_answered_late_and_then_the_connection_ends() -> None:
    talk = Talk(failure_delay_ms=100)
    talk.handshake()
    assert talk.authenticate(b"\0alice\0wrong") is None
    assert talk.session.muted and not talk.session.closing
    assert talk.send(frame(METADATA, 1, pack(">i", -1))) == 0, "nothing more is read"
    talk.at(99)
    assert talk.replies() == []
    talk.at(100)
    answer = talk.answer(authenticate_messages.DECODE_RESPONSE[1])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert talk.session.closing, "it ends once the answer has left"
    assert talk.session.principal == ANONYMOUS
    assert talk.mechanisms.logins.failed == {"PLAIN": 1}
    assert [seen.failure for seen in talk.seen] == ["wrong name or password"]


def test_a_mechanism_that_is_not_offered() -> None:
    talk = Talk(failure_delay_ms=0)
    assert talk.handshake(b"GSSAPI") is None
    talk.at(0)
    answer = talk.answer(handshake_messages.DECODE_RESPONSE[1])
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "EXPIRING"]
    assert talk.session.closing


def test_where_no_login_is_due_the_answer_says_so() -> None:
    talk = Talk()
    talk.session.login = None
    assert talk.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert talk.authenticate(ALICE).error_code == ErrorCode.ILLEGAL_SASL_STATE
    talk.ask_metadata()


# ---- sessions that end


def logged_in(**options: Any) -> Talk:
    talk = Talk(max_reauth_ms={"PLAIN": 10_000}, **options)
    talk.handshake()
    assert talk.authenticate(ALICE).session_lifetime_ms == 10_000
    return talk


def test_who_logs_in_again_stays() -> None:
    talk = logged_in()
    talk.at(9_000)
    talk.ask_metadata()
    assert talk.handshake().error_code == 0
    assert talk.authenticate(ALICE).session_lifetime_ms == 10_000
    talk.at(18_999)
    talk.ask_metadata()
    assert [seen.again for seen in talk.seen] == [False, True]


def test_who_does_not_is_ended_by_the_next_request() -> None:
    talk = logged_in()
    talk.at(10_000)
    with pytest.raises(ClosesConnection, match="expired"):
        talk.send(frame(METADATA, 1, pack(">i", -1)))
    assert talk.mechanisms.logins.expired == 1


def test_even_late_a_client_may_log_in_again() -> None:
    talk = logged_in()
    talk.at(12_000)
    assert talk.handshake().error_code == 0
    assert talk.authenticate(ALICE).error_code == 0
    talk.ask_metadata()


def test_a_user_does_not_become_another() -> None:
    talk = logged_in(failure_delay_ms=0)
    talk.handshake()
    talk.authenticate(b"\0bob\0builder")
    talk.at(0)
    answer = talk.answer(authenticate_messages.DECODE_RESPONSE[1])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert talk.session.closing
    assert talk.session.principal == Principal("User", "alice")


def test_nor_does_the_mechanism_change() -> None:
    talk = logged_in(failure_delay_ms=0)
    assert talk.handshake(b"EXPIRING").error_code == 0
    talk.authenticate(ALICE)
    talk.at(0)
    assert "PLAIN again" in talk.answer(authenticate_messages.DECODE_RESPONSE[1]).error_message


def test_not_more_than_once_a_second() -> None:
    talk = logged_in()
    talk.at(1)
    talk.handshake()
    talk.authenticate(ALICE)
    talk.at(500)
    assert talk.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    talk.at(1_001)
    assert talk.handshake().error_code == 0


def test_a_session_ends_with_what_was_shown() -> None:
    talk = Talk(max_reauth_ms={"EXPIRING": 60_000})
    talk.dispatch.now.wall_ms = 20_000
    talk.handshake(b"EXPIRING")
    assert talk.authenticate(ALICE).session_lifetime_ms == 30_000


# ---- bare tokens


def test_tokens_without_headers_after_a_handshake_of_version_0() -> None:
    talk = Talk()
    assert talk.handshake(version=0).error_code == 0
    assert talk.session.login is not None and talk.session.login.phase is Phase.BARE_TOKENS
    token = pack(">i", len(ALICE)) + ALICE
    assert talk.send(token[:3]) == 0
    assert talk.send(token[:9]) == 0 and talk.session.frame_size == len(token)
    assert talk.send(token) == len(token)
    answer: Any = talk.session.outbox.pop()
    assert bytes(answer) == pack(">i", 0)
    talk.session.owed = 0
    assert talk.session.principal == Principal("User", "alice")
    talk.ask_metadata()


def test_a_bare_token_that_fails_ends_the_connection_late_and_without_a_word() -> None:
    talk = Talk(failure_delay_ms=100)
    talk.handshake(version=0)
    talk.send(pack(">i", 3) + b"\0a\0")
    talk.at(99)
    assert not talk.dispatch.failed
    talk.at(100)
    assert [session for session, _ in talk.dispatch.failed] == [talk.session]
    assert talk.replies() == []


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_a_bare_token_has_a_bound(size: int) -> None:
    talk = Talk()
    talk.handshake(version=0)
    with pytest.raises(ClosesConnection, match="a token of"):
        talk.send(pack(">i", size))
