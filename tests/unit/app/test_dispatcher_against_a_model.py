"""The dispatcher against a plain model: everything that can happen to records, in every order.

A story is a list of steps: records of some keys and none, attempts that end out of order, failures
of all kinds, writes and transactions that fail, partitions that are taken away with attempts under
way, crashes, and a clock that jumps. What must hold is in `a_group_of_one.py`; at the end of each
story nothing fails any more, and every record must be finished.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headrace.app.dispatch.blocked_keys import BlockedKeys
from headrace.app.dispatch.dispatcher import Dispatcher
from headrace.app.dispatch.lanes import Lanes
from headrace.app.dispatch.waits import Waits
from tests.unit.app.a_group_of_one import World
from tests.unit.app.stories import ERRORS, MOST_OF_ANY, NAMES, WAYS, Step, some_story, tell

# `make test` stays short; a longer look: EXAMPLES=2000 and this file alone.
EXAMPLES = int(os.environ.get("EXAMPLES", "25"))
STORIES = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, MOST_OF_ANY - 1),
        st.integers(0, len(ERRORS) - 1),
    ),
    min_size=50,  # of steps that may be nothing; the average is twice as long
    max_size=150,
)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=EXAMPLES)
@given(story=STORIES, partitions=st.integers(1, 2))
def test_whatever_happens_every_record_is_finished_in_its_order(
    way: str, story: list[Step], partitions: int
) -> None:
    tell(story, World(partitions, **WAYS[way]))


# ---- the model sees it when a rule is broken

take_hold = Lanes.hold
wait = Waits.add
close = Dispatcher.close


def goes_on_at_once(self: Any, run: Any, rest: Any) -> None:
    take_hold(self, run, rest)
    if run.lane is not None:
        self.release(run.lane.name)


def is_due_at_once(self: Any, due_ms: int, what: Any) -> None:
    wait(self, 0, what)


def keeps_what_it_has(self: Any, owned: Any) -> None:
    owned.closing = True


def counts_as_written(self: Any, write: Any, now_ms: int) -> None:
    self.written(write)


def commits_within_a_transaction(self: Any, owned: Any, *, sent_too: bool) -> Any:
    found = self.offsets(owned)
    return found if any(stream.committed != said for stream, said in found) else []


def blocks_nothing(self: Any, lane: Any) -> bool:
    return False


def never_pauses(self: Any, owned: Any, most: int) -> bool:
    return False


BROKEN: list[tuple[str, type, str, Callable[..., Any], str]] = [
    ("keys", Lanes, "hold", goes_on_at_once, "overtakes|too early"),
    ("no order", Waits, "add", is_due_at_once, "too early"),
    ("partitions", Dispatcher, "close", keeps_what_it_has, "begun after it was closed"),
    ("no order", Dispatcher, "not_written", counts_as_written, "is lost|never finished"),
    ("keys", Dispatcher, "changed_offsets", commits_within_a_transaction, "is lost"),
    ("keys", BlockedKeys, "blocks", blocks_nothing, "overtakes"),
    ("partitions", Dispatcher, "must_pause", never_pauses, "waits in memory"),
]


@pytest.mark.parametrize(
    ("way", "owner", "rule", "broken", "objection"), BROKEN, ids=[one[3].__name__ for one in BROKEN]
)
def test_the_model_objects_to_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    owner: type,
    rule: str,
    broken: Callable[..., Any],
    objection: str,
) -> None:
    monkeypatch.setattr(owner, rule, broken)
    chance = random.Random(26)
    with pytest.raises(AssertionError, match=objection):
        for number in range(300):
            tell(some_story(chance), World(1 + number % 2, **WAYS[way]))
