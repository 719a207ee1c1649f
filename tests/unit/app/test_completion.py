"""Records finish in any order; the committed offset and its metadata forget none and claim none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.app.dispatch.completion import (
    FULL_FROM,
    LONGEST_METADATA,
    Completion,
    decode,
    encode,
    topic_id_in,
)

TOPIC_ID = "vPeOCWypqUOSepEvx0cbog"


def test_the_committed_offset_is_the_lowest_gap_and_the_rest_is_in_the_metadata() -> None:
    done = Completion(10)
    for offset in (10, 11, 12, 13, 14):
        assert done.begin(offset)
    done.finish(11)
    done.finish(13)
    done.finish(14)
    assert done.position == 10
    assert done.finished_ranges() == [(11, 12), (13, 15)]
    done.finish(10)
    assert done.position == 12
    done.finish(12)
    assert done.position == 15
    assert done.metadata() == ""


def test_after_a_crash_only_what_was_not_finished_comes_again() -> None:
    before = Completion(0)
    for offset in range(6):
        before.begin(offset)
    for offset in (1, 2, 4):
        before.finish(offset)
    position, metadata = before.position, before.metadata()

    after = Completion(position, decode(position, metadata))
    assert [offset for offset in range(position, 8) if after.begin(offset)] == [0, 3, 5, 6, 7]
    after.finish(0)
    assert after.position == 3


def test_holes_in_the_offsets_are_not_waited_for() -> None:
    done = Completion(0)
    for offset in (0, 5, 6, 90):  # compaction took the rest
        done.begin(offset)
    done.finish(5)
    done.finish(6)
    done.finish(90)
    assert done.position == 0
    assert done.finished_ranges() == [(5, 91)]
    done.finish(0)
    assert done.position == 91


@given(st.data())
def test_whatever_the_order_a_new_owner_repeats_exactly_the_unfinished(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 5), max_size=60))
    offsets, at = [], 0
    for gap in gaps:
        at += gap
        offsets.append(at)
    finished: set[int] = set()
    position, metadata = 0, ""
    for _ in range(data.draw(st.integers(1, 4))):  # so many owners, one after the other
        owner = Completion(position, decode(position, metadata))
        seen = [o for o in offsets if o >= position]
        seen = seen[: data.draw(st.integers(0, len(seen)))]
        begun = [offset for offset in seen if owner.begin(offset)]
        assert set(begun) == set(seen) - finished
        for offset in data.draw(st.permutations(begun)):
            if data.draw(st.booleans()):
                owner.finish(offset)
                finished.add(offset)
        assert owner.outstanding == len(set(begun) - finished)
        position, metadata = owner.position, owner.metadata()
        assert all(offset in finished for offset in offsets if offset < position)
        ranges = decode(position, metadata)
        claimed = {o for o in offsets if any(first <= o < after for first, after in ranges)}
        assert claimed == {o for o in finished if o >= position}


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**20)), max_size=2000))
def test_metadata_is_never_too_long_and_reads_back_as_far_as_it_goes(
    pairs: list[tuple[int, int]],
) -> None:
    ranges, at = [], 7
    for gap, length in pairs:
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    for topic_id in (None, TOPIC_ID):
        metadata = encode(7, ranges, topic_id)
        assert len(metadata) <= LONGEST_METADATA
        assert topic_id_in(metadata) == topic_id
        back = decode(7, metadata)
        assert back == ranges[: len(back)]
        if len(metadata) < LONGEST_METADATA - 32:
            assert back == ranges


def test_every_second_record_finished_fills_the_metadata_and_says_so() -> None:
    done = Completion(0)
    count = 0
    while not done.full:
        done.begin(2 * count)
        done.begin(2 * count + 1)
        done.finish(2 * count + 1)
        count += 1
        assert count < 10_000
    assert FULL_FROM <= len(done.metadata()) <= LONGEST_METADATA
    for even in range(0, 2 * count, 2):
        done.finish(even)
    assert not done.full
    assert done.position == 2 * count


@given(st.text(max_size=50))
def test_words_of_another_are_not_taken_for_ours(metadata: str) -> None:
    assert isinstance(decode(3, metadata), list)
    assert decode(3, "hr1:" + metadata[:20] + "!") == []
    assert topic_id_in(metadata) is None
    assert topic_id_in(f"hr2:{metadata[:21]}:") is None


def test_a_commit_names_the_topic_that_it_was_made_for() -> None:
    done = Completion(5, topic_id=TOPIC_ID)
    assert done.metadata() == f"hr2:{TOPIC_ID}:"
    done.begin(5)
    done.begin(6)
    done.finish(6)
    assert decode(5, done.metadata()) == [(6, 7)]
    assert topic_id_in(done.metadata()) == TOPIC_ID


def test_only_the_very_first_record_shows_that_the_log_ends_before_the_start() -> None:
    done = Completion(10)
    assert done.starts_beyond(3)
    assert not done.starts_beyond(10)
    assert done.begin(10)
    assert not done.starts_beyond(3)  # now it is one that is known
