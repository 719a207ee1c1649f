"""Rows of topics that are not served any more leave the store, those of others stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.services.delay.abandoned_rows import UNWANTED_FOR_S, Tidying
from headrace.services.delay.timeline.pending import Changes
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.topics import Catalog, Pair


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    for topic, partition in (("orders.delay", 0), ("orders.delay", 1), ("old/odd.delay", 12)):
        kept = b"k", b"v", None, None, 7, None, None
        changes = Changes(1, (-1, -1), 0, [], 1, puts=[(500, 0, kept)])
        made.partition(topic, partition, "one").apply(changes)
    yield made
    made.close()


def a_catalog(*companions: str, partitions: int = 2, complete: bool = True) -> Catalog:
    pairs = {
        each: Pair(each.removesuffix(".delay"), each, "id", partitions, 2, 10**6, False, 2, 2, 1)
        for each in companions
    }
    return Catalog(1, pairs, complete)


EVERYTHING = [("old/odd.delay", 12), ("orders.delay", 0), ("orders.delay", 1)]


def test_a_topic_that_was_disabled_is_forgotten_after_a_while(store: Store) -> None:
    tidying = Tidying(store)
    assert store.places() == EVERYTHING
    tidying.look(a_catalog("orders.delay"), (), 100.0)
    assert store.places() == EVERYTHING, "it may only seem so"
    tidying.look(a_catalog("orders.delay"), (), 100.0 + UNWANTED_FOR_S)
    assert store.places() == EVERYTHING[1:]
    assert store.partition("orders.delay", 0, "one").count == 1
    assert store.partition("old/odd.delay", 12, "one").count == 0


def test_one_that_comes_back_in_time_keeps_its_rows(store: Store) -> None:
    tidying = Tidying(store)
    served = a_catalog("orders.delay", "old/odd.delay", partitions=20)
    for number, catalog in enumerate((a_catalog("orders.delay"), served) * 10):
        tidying.look(catalog, (), number * UNWANTED_FOR_S)
    assert store.places() == EVERYTHING


def test_a_partition_that_is_not_there_any_more_is_forgotten(store: Store) -> None:
    tidying = Tidying(store)
    for now_s in (0.0, UNWANTED_FOR_S):
        tidying.look(a_catalog("orders.delay", partitions=1), {("old/odd.delay", 12)}, now_s)
    assert store.places() == EVERYTHING[:2], "and what this instance owns is not touched"


def test_nothing_is_forgotten_before_the_registry_was_read(store: Store) -> None:
    tidying = Tidying(store)
    for now_s in (0.0, UNWANTED_FOR_S):
        tidying.look(a_catalog(complete=False), (), now_s)
    assert store.places() == EVERYTHING
