"""How many records a batch takes where the pipeline does not say."""

from __future__ import annotations

from headrace.pipelines.stream import batch_bytes


def test_a_batch_is_bounded_by_bytes_and_never_empty() -> None:
    assert batch_bytes.most_records(1024) == 512 * 1024
    assert batch_bytes.most_records(10**12) == 1


def test_the_middle_of_the_fullest_partitions_is_looked_at() -> None:
    first = {"a": {"0": 0, "1": 10, "2": 5, "3": 0, "4": 0, "5": 0}}
    last = {"a": {"0": 100, "1": 10, "2": 15, "3": 7, "4": 8, "5": 9}}
    assert batch_bytes.middles(first, last) == [
        ("a", 0, 50),
        ("a", 2, 10),
        ("a", 5, 4),
        ("a", 4, 4),
    ]
