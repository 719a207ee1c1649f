"""Records of several partitions, merged by their times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.lookup.time_ordered import TimeOrder
from headrace.client.records import Record


def record(partition: int, offset: int, timestamp_ms: int | None) -> Record:
    return Record("orders", partition, offset, timestamp_ms, "create", None, b"", [])


def place(one: Record) -> tuple[int, int]:
    return one.partition, one.offset


def test_the_older_record_of_two_partitions_comes_first() -> None:
    order = TimeOrder([0, 1])
    order.add(record(0, 0, 30))
    assert list(order.ready()) == []  # partition 1 may bring an older one
    order.add(record(1, 0, 10))
    assert [place(one) for one in order.ready()] == [(1, 0)]
    order.close(1)
    assert [place(one) for one in order.ready()] == [(0, 0)]


def test_a_partition_keeps_the_order_of_its_offsets_whatever_its_times_say() -> None:
    order = TimeOrder([0, 1])
    for offset, timestamp_ms in enumerate([50, 10, None, 60]):
        order.add(record(0, offset, timestamp_ms))
    order.add(record(1, 0, 55))
    order.close(0)
    order.close(1)
    assert [place(one) for one in order.ready()] == [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3)]


times = st.one_of(st.none(), st.integers(min_value=0, max_value=20))


@given(st.lists(st.lists(times, max_size=12), min_size=1, max_size=4), st.randoms())
def test_whatever_the_order_of_arrival_the_answer_is_one_merge(partitions, chance) -> None:
    """Judged by a plain sort on the latest time so far of each partition."""
    logs = [
        [record(p, at, ms) for at, ms in enumerate(stamps)] for p, stamps in enumerate(partitions)
    ]
    expected = []
    for log in logs:
        reached = 0
        for one in log:
            reached = max(reached, one.timestamp_ms or 0)
            expected.append((reached, one.partition, one.offset))
    order = TimeOrder(range(len(logs)))
    given_out: list[tuple[int, int]] = []
    waiting = {p: list(log) for p, log in enumerate(logs)}
    while waiting:
        partition = chance.choice(sorted(waiting))
        if waiting[partition]:
            order.add(waiting[partition].pop(0))
        else:
            order.close(partition)
            del waiting[partition]
        given_out += [place(one) for one in order.ready()]
    assert given_out == [(p, offset) for _, p, offset in sorted(expected)]
