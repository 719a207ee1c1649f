"""What fuzzing has found, by name, and a walk with flipped bits through every captured frame.

The fuzzer itself is guided by coverage and runs for minutes (`make fuzz`); here the same target
gets what real clients have sent, whole and damaged, the same in each run.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz.seeds import captured, must_log_in, seeds
from tests.fuzz.target import Failure, Target

SEED = 8
DAMAGED_PER_SEED = 12


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(authenticate=must_log_in)


def test_what_real_clients_send_is_answered(target: Target) -> None:
    before = target.answered
    frames = captured()
    for frame in frames:
        target.run(b"\x02" + frame)
    assert target.answered - before > 0.8 * len(frames)


def test_damaged_requests_are_refused_or_answered(target: Target) -> None:
    chance = random.Random(SEED)
    for seed in seeds(target.routes()):
        for _ in range(DAMAGED_PER_SEED):
            target.run(damaged(seed, chance))
    assert target.refused > 500 and target.answered > 500


def damaged(seed: bytes, chance: random.Random) -> bytes:
    """Bits flipped, bytes that mean large numbers, pieces cut out or doubled."""
    data = bytearray(seed)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(1, len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + 4] = b"\x7f\xff\xff\xff"
            case 2:
                data[at] = 0xFF
            case 3:
                del data[at : at + chance.randrange(1, 8)]
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 32)]
    return bytes(data)


def test_the_target_sees_a_bug(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of this would prove nothing."""
    for route in target.routes():
        monkeypatch.setattr(route, "handle", lambda owner, request, call: 1 // 0)
    with pytest.raises(Failure):
        target.run(b"\x02" + captured()[0])
