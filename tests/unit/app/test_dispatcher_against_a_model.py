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
from headrace.app.dispatch.owned_partition import OwnedPartition
from headrace.app.dispatch.waits import Waits
from tests.unit.app.a_group_of_one import World
from tests.unit.app.stories import ERRORS, MOST_OF_ANY, NAMES, WAYS, Step, some_story, tell

# Of `make full`; a longer look: EXAMPLES=2000 EFFORT=full and this file alone.
EXAMPLES = int(os.environ.get("EXAMPLES", "25"))
# With every change; those that notice a broken rule (`BROKEN`) are among them.
SEEDS = (4, 5, 9, 11, 13, 25, 124)
STORIES = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, MOST_OF_ANY - 1),
        st.integers(0, len(ERRORS) - 1),
    ),
    min_size=50,  # of steps that may be nothing; the average is twice as long
    max_size=150,
)


def story_of(seed: int, way: str) -> None:
    tell(some_story(random.Random(seed)), World(1 + seed % 2, **WAYS[way]))


@pytest.mark.parametrize("way", WAYS)
def test_every_record_of_these_stories_is_finished_in_its_order(way: str) -> None:
    for seed in SEEDS:
        story_of(seed, way)


@pytest.mark.full
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


def commits_within_a_transaction(self: Any, *, sent_too: bool) -> Any:
    found = self.offsets()
    return found if any(stream.committed != said for stream, said in found) else []


def blocks_nothing(self: Any, lane: Any) -> bool:
    return False


def never_pauses(self: Any, most: int) -> bool:
    return False


BROKEN: list[tuple[int, str, type, str, Callable[..., Any], str]] = [
    (13, "keys", Lanes, "hold", goes_on_at_once, "overtakes|too early"),
    (11, "no order", Waits, "add", is_due_at_once, "too early"),
    (5, "partitions", Dispatcher, "close", keeps_what_it_has, "begun after it was closed"),
    (11, "no order", Dispatcher, "not_written", counts_as_written, "is lost|never finished"),
    (124, "keys", OwnedPartition, "changed_offsets", commits_within_a_transaction, "is lost"),
    (4, "keys", BlockedKeys, "blocks", blocks_nothing, "overtakes"),
    (5, "partitions", OwnedPartition, "must_pause", never_pauses, "waits in memory"),
]


@pytest.mark.parametrize(
    ("seed", "way", "owner", "rule", "broken", "objection"),
    BROKEN,
    ids=[one[4].__name__ for one in BROKEN],
)
def test_the_model_objects_to_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    way: str,
    owner: type,
    rule: str,
    broken: Callable[..., Any],
    objection: str,
) -> None:
    assert seed in SEEDS, "each of them is noticed where nothing is broken on purpose"
    monkeypatch.setattr(owner, rule, broken)
    with pytest.raises(AssertionError, match=objection):
        story_of(seed, way)
