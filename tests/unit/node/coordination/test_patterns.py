"""Patterns of clients: sensible ones are taken, hostile ones refused, none holds the loop."""

import pytest

from headrace.node.coordination.patterns import WORK_PER_NAME, WORK_PER_STEP, Pattern
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import ErrorCode, KafkaError

SENSIBLE = (
    "orders.*",
    "(prod|dev|test)-.*-events",
    "^(?i:orders)[-_.](eu|us)$",
    r"[\p{L}\p{N}._-]+",
    "[a-zA-Z0-9._-]{1,249}",
    "(?:[^.]+[.]){2,5}v[0-9]{1,3}",
    "|".join(f"tenant-{number:05d}[.]orders" for number in range(150)),
)
HOSTILE = (
    "(x?){900}" * 8,  # 72 bytes held the loop for 0.3 s
    "((x?){900}x{900}){1}" * 4,
    "x" * 5_000,
    r"\pL" * 300,  # only to compile it took 27 ms
    r"\pL{1,20}",
    "(",
)


@pytest.mark.parametrize("regex", SENSIBLE)
def test_sensible_patterns_are_taken(regex):
    assert not Pattern(regex, "Pattern").matches("\n")


@pytest.mark.parametrize("regex", HOSTILE)
def test_hostile_patterns_are_refused(regex):
    with pytest.raises(KafkaError) as refused:
        Pattern(regex, "Pattern")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message.startswith("Pattern ")


def test_a_pattern_matches_the_whole_name():
    found = at_once(Pattern("ord(er)?s", "Pattern").matching(["orders", "ords", "orders2", "my"]))
    assert found == {"orders", "ords"}


def test_many_names_are_tried_in_steps_of_the_same_work():
    pattern = Pattern("(x?){200}", "Pattern")
    names = [f"{'x' * 50}{number}" for number in range(100)]
    tried = []
    pattern._fullmatch = tried.append
    tried_at_step = []
    for _ in pattern.matching(names):
        tried_at_step.append(len(tried))
    sizes = [b - a for a, b in zip([0, *tried_at_step], tried_at_step, strict=False)]
    per_name = pattern.instructions * 50 + WORK_PER_NAME
    assert len(tried) == 100
    assert sizes and max(sizes) <= WORK_PER_STEP // per_name + 1
