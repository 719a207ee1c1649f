"""Lag and its causes, from two looks at a group."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.services.backlog.diagnosis import KeySample, Retrying, diagnosed
from headrace.services.backlog.lag import GroupLag, Look, Place, group_lag


def look(
    at_s: float,
    committed: list[int | None],
    ends: list[int],
    members: dict[str, list[int]] | None = None,
    state: str = "Stable",
) -> Look:
    return Look(
        at_s,
        {("orders", p): offset for p, offset in enumerate(committed) if offset is not None},
        {("orders", p): end for p, end in enumerate(ends)},
        {("orders", p): max(0, end - (committed[p] or 0)) for p, end in enumerate(ends)},
        state,
        {name: [("orders", p) for p in parts] for name, parts in (members or {}).items()},
    )


def lag_of(
    committed: list[list[int]],
    ends: list[list[int]],
    members: dict[str, list[int]],
    state: str = "Stable",
) -> GroupLag:
    """Two looks, ten seconds apart; each partition is [before, after]."""
    return group_lag(
        "billing",
        look(0, [c[0] for c in committed], [e[0] for e in ends], members, state),
        look(10, [c[1] for c in committed], [e[1] for e in ends], members, state),
    )


def causes(lag: GroupLag, *samples: KeySample) -> list[str]:
    return [found.cause for found in diagnosed(lag, samples)]


# ---- how far


def test_lag_rates_and_the_end_of_the_backlog() -> None:
    lag = lag_of([[0, 3_000]], [[10_000, 11_000]], {"a": [0]})
    assert (lag.lag, lag.rate_in, lag.rate_out) == (8_000, 100, 300)
    assert lag.caught_up_in_s == pytest.approx(40)


def test_the_slowest_partition_decides_when_a_group_has_caught_up() -> None:
    lag = lag_of([[0, 1_000], [0, 100]], [[2_000, 2_000], [2_000, 2_000]], {"a": [0], "b": [1]})
    assert lag.caught_up_in_s == pytest.approx(190)


def test_a_group_that_reads_slower_than_records_come_never_catches_up() -> None:
    assert lag_of([[0, 100]], [[1_000, 2_000]], {"a": [0]}).caught_up_in_s is None
    assert lag_of([[0, 1_000]], [[1_000, 2_000]], {"a": [0]}).caught_up_in_s is None
    assert lag_of([[5, 5]], [[5, 5]], {"a": [0]}).caught_up_in_s == 0


def test_a_partition_without_a_commit_has_no_lag_and_a_lost_topic_no_row() -> None:
    before = look(0, [None, 5], [100, 100], {"a": [0, 1]})
    after = look(10, [None, 5], [100], {"a": [0, 1]})
    lag = group_lag("g", before, after)
    assert [(one.place, one.lag) for one in lag.partitions] == [(("orders", 0), 0)]


def test_a_group_that_was_moved_back_meanwhile_has_no_negative_rate() -> None:
    assert lag_of([[500, 0]], [[1_000, 1_000]], {"a": [0]}).rate_out == 0


# ---- why


def test_without_a_backlog_there_is_nothing_to_find() -> None:
    assert causes(lag_of([[0, 50]], [[60, 100]], {})) == []


def test_nobody_reads() -> None:
    assert causes(lag_of([[0, 0]], [[1_000, 1_000]], {})) == ["no-members"]


def test_a_group_in_a_rebalance_is_named() -> None:
    lag = lag_of([[0, 0]], [[1_000, 1_000]], {"a": [0]}, "PreparingRebalance")
    assert causes(lag)[0] == "rebalancing"


def test_a_partition_that_stands_still_while_others_move_is_named_with_its_offset() -> None:
    lag = lag_of([[0, 900], [7, 7]], [[1_000, 1_000], [1_000, 1_000]], {"a": [0], "b": [1]})
    found = diagnosed(lag)
    assert found[0].cause == "stuck"
    assert "offset 7" in found[0].sentence
    assert found[0].command == "headrace consume orders --partition 1 --from 7 -n 1"


def test_a_group_of_which_nothing_moves_is_told_as_a_whole() -> None:
    lag = lag_of([[0, 0], [0, 0]], [[1_000, 1_000]] * 2, {"a": [0], "b": [1]})
    assert causes(lag) == ["stands-still"]


def test_one_hot_partition() -> None:
    lag = lag_of(
        [[0, 100]] * 3, [[5_000, 5_000], [150, 150], [150, 150]], {"a": [0], "b": [1], "c": [2]}
    )
    assert "hot-partition" in causes(lag)


def test_one_hot_key_among_the_next_records() -> None:
    lag = lag_of([[0, 100]], [[5_000, 6_000]], {"a": [0]})
    place: Place = ("orders", 0)
    hot = KeySample(place, Counter({b"tom": 60, b"ann": 20, b"bob": 20}))
    even = KeySample(place, Counter({b"k%d" % n: 1 for n in range(100)}))
    few = KeySample(place, Counter({b"tom": 9, b"ann": 1}))
    without = KeySample(place, Counter({None: 100}))
    assert "hot-key" in causes(lag, hot)
    for sample in (even, few, without):
        assert "hot-key" not in causes(lag, sample)


def test_one_slow_member() -> None:
    lag = lag_of(
        [[0, 10], [0, 1_000], [0, 1_000]],
        [[5_000, 5_000]] * 3,
        {"slow": [0], "b": [1], "c": [2]},
    )
    [found] = [each for each in diagnosed(lag) if each.cause == "slow-member"]
    assert "slow" in found.sentence


def test_more_members_than_partitions_and_fewer() -> None:
    more = lag_of([[0, 100]], [[1_000, 2_000]], {"a": [0], "b": []})
    assert "idle-members" in causes(more)
    fewer = lag_of([[0, 100], [0, 100]], [[1_000, 2_000]] * 2, {"a": [0, 1]})
    assert "few-members" in causes(fewer)


def test_what_is_left_is_slow_handling_or_patience() -> None:
    slow = lag_of([[0, 100]], [[1_000, 2_000]], {"a": [0]})
    [found] = diagnosed(slow)
    assert found.cause == "evenly-slow"
    assert found.command == "headrace backlog widen orders --group billing"
    quick = lag_of([[0, 900]], [[2_000, 2_000]], {"a": [0]})
    assert causes(quick) == ["catching-up"]


def test_names_in_commands_are_quoted_for_a_shell() -> None:
    lag = lag_of([[0, 0]], [[1_000, 1_000]], {"a": [0]})
    lag.group = "x; rm -rf ~"
    assert "'x; rm -rf ~'" in (diagnosed(lag)[0].command or "")


def test_records_that_fail_are_told_with_where_they_wait() -> None:
    lag = lag_of([[0, 1_000]], [[9_000, 10_000]], {"a": [0]})
    retrying = [Retrying("orders", "orders.billing.retry", waiting=7, attempts=3)]
    found = {each.cause: each for each in diagnosed(lag, [], retrying)}
    assert "up to 7 wait in orders.billing.retry" in found["failing"].sentence
    assert found["failing"].command is not None
    # Records that were brought back or are replayed wait there too, and have not failed.
    sent_back = [Retrying("orders", "orders.billing.retry", waiting=7, attempts=0)]
    assert "failing" not in {each.cause for each in diagnosed(lag, [], sent_back)}


def test_large_records_need_larger_fetches() -> None:
    lag = lag_of([[0, 1_000]], [[9_000, 10_000]], {"a": [0]})
    large = KeySample(("orders", 0), Counter([b"a", b"b"]), mean_bytes=400_000)
    [finding] = [each for each in diagnosed(lag, [large]) if each.cause == "small-fetches"]
    assert "a fetch holds 2 of them" in finding.sentence
    small = KeySample(("orders", 0), Counter([b"a", b"b"]), mean_bytes=4_000)
    assert "small-fetches" not in causes(lag, small)


def test_a_partition_without_a_commit_is_not_called_caught_up() -> None:
    lag = group_lag(
        "billing", look(0, [None, 10], [500, 10], {"a": [0, 1]}),
        look(10, [None, 10], [500, 10], {"a": [0, 1]}),
    )  # fmt: skip
    assert lag.lag == 0
    [finding] = diagnosed(lag)
    assert finding.cause == "nothing-committed"
    assert "1 of 2 partitions" in finding.sentence
