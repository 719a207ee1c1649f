"""The power of a whole node is cut at any moment: it starts, and holds what it has promised."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from headrace.node.simulator.disk import Names
from tests.unit.power_cut.whole_node import (
    COMPACTED,
    PARTITIONS,
    PLAIN,
    TRANSACTIONAL,
    Cut,
    NodeOnVirtualDisk,
    Story,
    warnings,
)

# `make soak` asks for more by POWER_CUTS.
SEEDS = int(os.environ.get("POWER_CUTS", "12")) // 4
STEPS = 100


@pytest.mark.parametrize("durable", [True, False], ids=["disk", "page-cache"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_node_keeps_its_promises(seed: int, durable: bool) -> None:
    keeps_its_promises(seed, durable=durable)


@pytest.mark.full
@pytest.mark.parametrize("durable", [True, False], ids=["disk", "page-cache"])
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_more_nodes_keep_their_promises(seed: int, durable: bool) -> None:
    keeps_its_promises(seed, durable=durable)


def keeps_its_promises(seed: int, *, durable: bool) -> None:
    names = Names.IN_ANY_ORDER if seed % 3 == 2 else Names.IN_ORDER
    story = Story(seed, durable=durable, names=names)
    for cut in story.tell(STEPS):
        with warnings() as said:
            try:
                node = NodeOnVirtualDisk(cut.disk, Random(seed + 1), durable=durable)
                check(node, cut, said, durable=durable)
                goes_on(node, durable=durable)
            except Exception as failure:
                raise AssertionError(f"{cut.when}: {failure}; said: {said}") from failure


def check(node: NodeOnVirtualDisk, cut: Cut, said: list[str], *, durable: bool) -> None:
    check_topics(node, cut)
    for place, log in node.logs().items():
        assert not log.segments.damage(), f"{place}: what was not flushed is cut, not damaged"
        if log.cut is not None:
            folder = f"{place[0]}-{place[1]}: cut"
            assert any(folder in line for line in said), f"nobody says what was cut of {place}"
    for topic in (PLAIN, COMPACTED, TRANSACTIONAL):
        for partition in range(PARTITIONS):
            check_records(node, cut, (topic, partition), durable=durable)
    check_commits(node, cut, durable=durable)
    if durable:
        check_transactions(node, cut)


def check_topics(node: NodeOnVirtualDisk, cut: Cut) -> None:
    """The metadata log is flushed before anybody is answered, in either mode."""
    topics = node.node.broker.image.topics
    assert cut.promises.topics <= set(topics)
    assert not cut.promises.deleted_topics & set(topics)
    for topic, retention_ms in cut.promises.settings.items():
        settings = node.logs()[topic, 0].settings
        assert settings.retention_ms == retention_ms


def check_records(
    node: NodeOnVirtualDisk, cut: Cut, place: tuple[str, int], *, durable: bool
) -> None:
    if place not in node.logs():
        assert place[0] not in cut.promises.topics
        return
    promises = cut.promises
    found = list(node.records(*place))
    values = {offset: value for offset, _, value in found}
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets)), "in order, each once"
    acknowledged = promises.records.get(place, {})
    for offset, value in values.items():
        assert acknowledged.get(offset, value) == value, f"{place}: another value at {offset}"
        assert value in promises.sent.get(place, ()), f"{place}: nobody sent what is at {offset}"
    below = max(acknowledged, default=-1) + 1 if durable else cut.flushed.get(place, 0)
    if place[0] == COMPACTED:
        last = {key: offset for offset, key, _ in found if key is not None}
        for key, offset in promises.keys.get(place, {}).items():
            assert offset >= below or last.get(key, -1) >= offset, f"{place}: {key!r} is lost"
        return
    deletable = promises.deletable.get(place, 0)  # some of that may come back
    start = node.logs()[place].start_offset
    assert start <= deletable, f"{place}: begins too late"
    if durable:
        assert start >= promises.deleted.get(place, 0), f"{place}: deleted records are back"
    for offset in acknowledged:
        if deletable <= offset < below:
            assert offset in values, f"{place}: the record at {offset} is lost"


def check_commits(node: NodeOnVirtualDisk, cut: Cut, *, durable: bool) -> None:
    flushed = sum(p for place, p in cut.flushed.items() if place[0] == "__consumer_offsets")
    for group, (offset, end_of_logs) in cut.promises.commits.items():
        if durable or end_of_logs <= flushed:
            found = node.committed_offset(group, PLAIN)
            assert offset <= found <= cut.promises.asked_commits[group], f"{group}: {found}"


def check_transactions(node: NodeOnVirtualDisk, cut: Cut) -> None:
    """What was left open is aborted when its time is over; then all is decided."""
    for _ in range(8):
        node.advance(15_000)
    promises = cut.promises
    visible: set[bytes] = set()
    for partition in range(PARTITIONS):
        log = node.logs().get((TRANSACTIONAL, partition))
        if log is None:
            continue
        assert not log.producers.open_transactions, "a transaction that nobody ends"
        visible |= node.visible(TRANSACTIONAL, partition)
    assert promises.committed <= visible, "a committed record is lost"
    assert visible <= promises.committed | promises.undecided, "an aborted record is served"


def goes_on(node: NodeOnVirtualDisk, *, durable: bool) -> None:
    """Clients write, a clean stop keeps everything, and nobody finds damage later."""
    for partition in range(PARTITIONS):
        if (PLAIN, partition) in node.logs():
            assert node.produce(PLAIN, "on", partition=partition).error_code == 0
    before = {place: list(node.records(*place)) for place in node.logs()}
    node.stop()
    disk: Any = node.node.disk
    again = NodeOnVirtualDisk(disk, Random(7), durable=durable)
    for place, records in before.items():
        found = list(again.records(*place))
        assert found[: len(records)] == records, place
        assert not again.logs()[place].segments.damage()
