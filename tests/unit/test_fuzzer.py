"""The fuzzer finds what is wrong: bugs are planted, and a short run with a fixed seed meets them.

Without this all those minutes in which nothing was found would prove nothing. Each test plants a
bug of another kind, in the running code and not in the product, and names what must notice it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from headrace.node.broker.handlers import describe_configs, list_offsets
from headrace.node.serving.authentication import plain, scram
from headrace.node.serving.authorization import Authorizer
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import describe_configs as describing
from headrace.wire.protocol.messages import metadata
from tests.effort import examples
from tests.fuzz import stand
from tests.fuzz.logins import frames_of
from tests.fuzz.seeded import inputs
from tests.fuzz.target import Failure, Target
from tests.fuzz.variants import BEFORE_LOGIN, GUARDED, LIMITED, LOGIN, OPEN, Variant, flags_of
from tests.fuzz.witness import TOPIC

SEED = 8
# Less than what a node lives for, so that what is planted in one is there to the end.
INPUTS = 450
HEARTBEAT, DESCRIBE_CONFIGS = 12, 32
BROKER = 4


@pytest.fixture
def new_target() -> Iterator[Callable[[], Target]]:
    made: list[Target] = []

    def make() -> Target:
        made.append(Target())
        return made[-1]

    yield make
    for target in made:
        target.close()


def found_by(target: Target, variant: Variant, *, most: int = INPUTS) -> Failure:
    """The first failure of a short run."""
    for data in islice(inputs(target.routes(), variant, SEED), most):
        try:
            target.run(data)
        except Failure as failure:
            return failure
    raise AssertionError(f"{most} inputs have found nothing")


@pytest.mark.parametrize("variant", [OPEN, GUARDED, BEFORE_LOGIN, LOGIN, LIMITED])
def test_without_a_bug_nothing_is_found(new_target: Callable[[], Target], variant: Variant) -> None:
    """Under all circumstances; some is answered, and what must not be is not."""
    target, most = new_target(), examples(INPUTS)
    for data in islice(inputs(target.routes(), variant, SEED), most):
        target.run(data)
    assert target.requests > most / 3 and target.testimonies >= most // 30

    assert target.answered > most / 5
    if variant is LOGIN:
        assert target.logged_in > most // 20


SOUND = dict(metadata.DECODE_REQUEST)


def decode_with_bug(version: int, view: memoryview, at: int) -> Any:
    request, end = SOUND[version](view, at)
    if request.topics and len(request.topics) > 2:
        raise KeyError(len(request.topics))  # this is the bug
    return request, end


# Functions of a module: a long request is decoded by a twin that is made of its decoder's source.
def decode_9(view: memoryview, at: int) -> Any:
    return decode_with_bug(9, view, at)


def decode_10(view: memoryview, at: int) -> Any:
    return decode_with_bug(10, view, at)


def decode_11(view: memoryview, at: int) -> Any:
    return decode_with_bug(11, view, at)


def decode_12(view: memoryview, at: int) -> Any:
    return decode_with_bug(12, view, at)


def decode_13(view: memoryview, at: int) -> Any:
    return decode_with_bug(13, view, at)


BUGGY = {9: decode_9, 10: decode_10, 11: decode_11, 12: decode_12, 13: decode_13}


def test_a_decoder_that_looks_up_what_is_not_there(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyError in one version of Metadata, for more than two topics."""
    for version, decode in BUGGY.items():
        monkeypatch.setitem(metadata.DECODE_REQUEST, version, decode)
    failure = found_by(new_target(), OPEN, most=4_000)
    assert isinstance(failure.__cause__, KeyError)


def test_a_handler_that_divides_without_looking(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_bug(leader: Any, part: Any, *more: Any, **how: Any) -> Any:
        return -1, 1 // (part.partition_index - 1), -1

    monkeypatch.setattr(list_offsets, "find", with_bug)
    failure = found_by(new_target(), OPEN, most=4_000)
    assert isinstance(failure.__cause__, ZeroDivisionError)


def test_a_token_that_meets_no_guard(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a handshake of version 0 there is no handler around the token."""

    def with_bug(self: Any, token: bytes, now: Any) -> bytes:
        self.user = token.split(b"\0")[2].decode()
        return b""

    monkeypatch.setattr(plain.Plain, "step", with_bug)
    target = new_target()
    with pytest.raises((IndexError, Failure)):
        for data in islice(inputs(target.routes(), LOGIN, SEED), INPUTS):
            target.run(data)


@pytest.mark.parametrize("module", [plain, scram])
def test_a_comparison_that_is_always_right(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setattr(module.hmac, "compare_digest", lambda one, other: True)
    assert "without the secret" in str(found_by(new_target(), LOGIN))


def test_a_right_that_nobody_asks_for(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    allows = Authorizer.allows

    def with_hole(self: Any, asking: Any, operation: Any, *what: Any, **how: Any) -> bool:
        return operation == Operation.WRITE or allows(self, asking, operation, *what, **how)

    monkeypatch.setattr(Authorizer, "allows", with_hole)
    failure = found_by(new_target(), GUARDED, most=4_000)
    assert "without rights" in str(failure)


def test_a_request_that_is_never_answered(new_target: Callable[[], Target]) -> None:
    target = new_target()
    for route in target.route_of(HEARTBEAT):
        route.handle = lambda owner, request, call: None
    assert "answers" in str(found_by(target, OPEN))


def test_a_record_that_gets_lost(new_target: Callable[[], Target]) -> None:
    """Somebody's request makes somebody else's log begin later."""
    target = new_target()

    def with_bug(broker: Any, request: Any, call: Any) -> Any:
        log = broker.topics.by_name[TOPIC].replicas[0].log
        log.start_offset = log.end_offset
        return handle(broker, request, call)

    for route in target.route_of(HEARTBEAT):
        handle = route.handle
        route.handle, route.handle_large = with_bug, None
    assert "acknowledged" in str(found_by(target, OPEN))


def test_a_small_request_with_an_endless_answer(
    new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of half a KB: the settings of one broker, forty times."""
    resource = describing.DescribeConfigsResource(BROKER, "1", None)
    request = describing.DescribeConfigsRequest([resource] * 40, True, True)
    data = bytes([flags_of(OPEN, raw=True)]) + frames_of(describing, 4, request)
    assert len(data) < 600
    monkeypatch.setattr(stand, "MOST_ANSWERED_BYTES", 1 << 17)
    target = new_target()
    target.run(data)

    def with_bug(broker: Any, request: Any, call: Any) -> Any:
        return describing.DescribeConfigsResponse(
            results=[
                describe_configs._result(broker, wanted, request, call, has_room=True)
                for wanted in request.resources
            ]
        )

    for route in target.route_of(DESCRIBE_CONFIGS):
        route.handle, route.handle_large = with_bug, None
    with pytest.raises(Failure, match="bytes of answers"):
        target.run(data)
