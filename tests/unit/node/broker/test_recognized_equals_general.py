"""A recognized request is answered as the general path answers it, whatever happens in between.

Hypothesis tells stories of requests and changes; two nodes live through each of them, of which one
recognizes requests and the other decodes all (`two_ways.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.broker.recognized import RECOGNIZED
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.acls import Operation, ResourceType
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import offset_commit, produce
from tests.effort import examples
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.guarded_rig import Guarded
from tests.unit.node.broker.rig import Rig
from tests.unit.node.broker.two_ways import (
    SPOILED,
    Way,
    find,
    limit,
    plain,
    with_a_long_varint,
    with_a_tag_of_the_partition,
    with_more_behind,
)

GROUP, TOPIC = "g", "orders"
STORIES = examples(45)
TICK_NS = 3_000_000_000  # a request takes three seconds, where its time is measured


Asked = dict[str, Any]
Story = tuple[Asked, list[tuple[str, Asked | None]]]

PLAIN: Asked = {"topic": TOPIC, "partition": 0, "client": "me", "spoiled": plain, "flipped": None}
PLAIN_PRODUCE = PLAIN | {"version": 12, "acks": -1, "values": ["a"], "key": None}
PLAIN_PRODUCE |= {"producer": (-1, -1, -1), "transaction": None, "base": 0}
PLAIN_COMMIT = PLAIN | {"version": 9, "epoch": -1, "note": "", "who": "member", "offset": 5}

# What a request may say otherwise than the plain one.
OTHERWISE: dict[str, list[Any]] = {
    "topic": ["nobody", "__consumer_offsets"],
    "partition": [1, 2, 3],
    "client": ["somebody else", None, "c" * 600],
    "spoiled": [*SPOILED, "varint"],
    "flipped": [(at, bits) for at in range(-6, 90) for bits in (1, 0x80, 0xFF)],
}
OTHERWISE_PRODUCED = OTHERWISE | {
    "version": [3, 8, 9, 11, 13],
    "acks": [1, 0, 3],
    "values": [["b", "c"], ["d" * 300], ["e" * 20_000], []],
    "key": [b"k"],
    "producer": [(7, 0, 0), (7, 0, 1), (7, 1, 0)],  # id, epoch, sequence
    "transaction": ["t"],
    "base": [1, 70 << 40],  # the offset that the batch claims to have
}
OTHERWISE_COMMITTED = OTHERWISE | {
    "version": [2, 7, 8, 10],
    "epoch": [3],
    "note": [None, "so far"],
    "who": ["nobody", "stranger"],
    "offset": [0, 6, 2**62, -1],
}
OF_TOPICS = ["nothing", "delete", "create", "grow", "limit", "unlimit", "forbid", "allow", "later"]
OF_PARTITIONS = ["epoch", "two in sync", "one in sync", "small", "compact", "log time", "waits"]
OF_MEMBERS = ["join", "leave", "other generation"]


def stories_of(plainly: Asked, otherwise: dict[str, list[Any]], changes: list[str]) -> Any:
    """A request that is sent again and again; in between something changes, or others are sent."""
    fields = [
        st.fixed_dictionaries({field: st.sampled_from(values)})
        for field, values in otherwise.items()
    ]
    varied = st.booleans().flatmap(lambda other: st.one_of(fields) if other else st.just({}))
    other = st.none() | st.tuples(st.one_of(fields), varied).map(lambda d: plainly | d[0] | d[1])
    between = st.lists(st.tuples(st.sampled_from(changes), other), min_size=6, max_size=16)
    return st.tuples(varied.map(lambda d: plainly | d), between)


class World:
    """One of the two nodes, and what the next requests name."""

    def __init__(self, folder: Path, *, kind: type[Rig], recognizes: bool) -> None:
        ticks = count(0, TICK_NS)
        self.rig = kind(folder, request_clock=lambda: next(ticks))
        find(self.rig, GROUP)
        self.topic_id = self.rig.create(TOPIC, partitions=2)
        self.member = ("", -1)  # as which requests commit
        self.joined = ""  # the member that the group has
        self.allow()
        self.way = Way(self.rig, recognizes=recognizes)

    def allow(self) -> None:
        if isinstance(self.rig, Guarded):
            self.rig.allow(Operation.WRITE, TOPIC)
            self.rig.allow(Operation.READ, TOPIC)
            self.rig.allow(Operation.READ, GROUP, ResourceType.GROUP)

    def change(self, what: str) -> None:
        rig = self.rig
        topic = rig.node.broker.topics.by_name.get(TOPIC)
        if what == "create" and topic is None:
            self.topic_id = rig.create(TOPIC, partitions=2)
        elif what == "limit":
            limit(rig, producer_byte_rate=100.0, request_percentage=20.0)
        elif what == "unlimit":
            limit(rig, producer_byte_rate=None, request_percentage=None)
        elif what == "allow":
            self.allow()
        elif what == "forbid" and isinstance(rig, Guarded):
            self.allow()
            rig.take_away(Operation.WRITE)
            rig.take_away(Operation.READ)
        elif what == "later":
            rig.advance(9_000)
        elif what in OF_MEMBERS:
            self.change_members(what)
        elif topic is not None:
            self.change_topic(what, topic)

    def change_topic(self, what: str, topic: Any) -> None:
        rig, leader = self.rig, topic.replicas[0]
        if what == "delete":
            rig.delete(TOPIC)
        elif what == "grow":
            rig.grow(TOPIC, len(topic.replicas) + 1)
        elif what == "epoch":
            leader.epoch += 1
        elif what == "two in sync":
            leader.min_in_sync = 2
        elif what == "one in sync":
            leader.min_in_sync = 1
        elif what == "small":
            rig.alter(2, TOPIC, max_message_bytes=200)
        elif what == "compact":
            rig.alter(2, TOPIC, cleanup_policy="compact")
        elif what == "log time":
            rig.alter(2, TOPIC, message_timestamp_type="LogAppendTime")
        elif what == "waits":
            leader.commits_at_once = not leader.commits_at_once

    def change_members(self, what: str) -> None:
        rig = self.rig
        assert isinstance(rig, GroupRig)
        if self.joined:
            rig.leave(GROUP, self.joined)
            self.joined = ""
        if what == "leave":
            self.member = ("", -1)
            return
        member = rig.stable_group(GROUP)
        self.joined = member[0]
        if what == "join":
            self.member = member  # else who was a member before goes on committing

    def batch(self, asked: Asked) -> bytes:
        producer_id, producer_epoch, sequence = asked["producer"]
        wall_ms, key = self.rig.now.wall_ms, asked["key"]
        return record_batch.build(
            [
                record_batch.Record(key=key, value=value.encode(), timestamp=wall_ms)
                for value in asked["values"]
            ],
            base_offset=asked["base"],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=asked["transaction"] is not None,
        )

    def produced(self, asked: Asked) -> bytes:
        batch = self.batch(asked) if asked["values"] else b""
        part = produce.PartitionProduceData(asked["partition"], batch)
        by_id = asked["version"] >= 13
        data = produce.TopicProduceData(
            "" if by_id else asked["topic"], self.topic_id if by_id else bytes(16), [part]
        )
        request = produce.ProduceRequest(asked["transaction"], asked["acks"], 1_000, [data])
        return framed(produce, asked, request, batch)

    def committed(self, asked: Asked) -> bytes:
        part = offset_commit.OffsetCommitRequestPartition(
            asked["partition"], asked["offset"], asked["epoch"], asked["note"]
        )
        by_id = asked["version"] >= 10
        data = offset_commit.OffsetCommitRequestTopic(
            "" if by_id else asked["topic"], self.topic_id if by_id else bytes(16), [part]
        )
        member = {"member": self.member, "nobody": ("", -1), "stranger": ("x", 3)}[asked["who"]]
        request = offset_commit.OffsetCommitRequest(GROUP, member[1], member[0], None, -1, [data])
        return framed(offset_commit, asked, request, (asked["note"] or "").encode())

    def kept(self) -> Any:
        """All that requests have left behind."""
        broker = self.rig.node.broker
        logs = []
        for topic in broker.topics.by_id.values():
            for leader in topic.replicas:
                log = leader.log
                found = log.read(0, 1 << 30, up_to=log.end_offset, at_least_one=True)
                records = b"" if found is None else found.file.read(found.length, found.position)
                logs.append((topic.name, leader.high_watermark, leader.bytes_in, records))
        denied = self.rig.seen_denied if isinstance(self.rig, Guarded) else []
        return logs, [about[1:] for about in denied], self.way.counters()


def framed(messages: Any, asked: Asked, request: Any, last: bytes) -> bytes:
    pieces = encode_request(messages, asked["version"], 7, asked["client"], request)
    frame = b"".join(bytes(piece) for piece in pieces)
    if asked["version"] >= messages.FLEXIBLE_FROM:
        spoil = asked["spoiled"]
        frame = with_a_long_varint(frame, last) if spoil == "varint" else spoil(frame)
    if asked["flipped"] is not None:
        at, bits = asked["flipped"]
        at = min(at, len(frame) - 1) % len(frame)
        frame = frame[:at] + bytes([frame[at] ^ bits]) + frame[at + 1 :]
    return frame


def live(story: Story, kind: type[Rig], write: Callable[[World, Asked], bytes]) -> int:
    """Both nodes through the story; how many requests were recognized."""
    with TemporaryDirectory() as folder, ExitStack() as end:
        worlds = []
        for name in ("recognizes", "decodes"):
            worlds.append(World(Path(folder, name), kind=kind, recognizes=name == "recognizes"))
            end.callback(worlds[-1].rig.stop)
        main, between = story
        for change, other in between:
            for world in worlds:
                world.change(change)
            for asked in (main, main, other, other, main):
                if asked is not None:
                    frames = [write(world, asked) for world in worlds]
                    assert frames[0] == frames[1]
                    replies = [world.way.send(frames[0]) for world in worlds]
                    assert replies[0] == replies[1]
        assert worlds[0].kept() == worlds[1].kept()
        assert worlds[1].way.answered_short == 0
        return worlds[0].way.answered_short


def tell(stories: Any, kind: type[Rig], write: Callable[[World, Asked], bytes]) -> None:
    recognized = 0

    @settings(max_examples=STORIES)
    @given(stories)
    def told(story: Story) -> None:
        nonlocal recognized
        recognized += live(story, kind, write)

    told()
    assert recognized > STORIES, "these stories are about requests that are recognized"


@pytest.mark.parametrize("kind", [GroupRig, Guarded])
def test_produce(kind: type[Rig]) -> None:
    stories = stories_of(PLAIN_PRODUCE, OTHERWISE_PRODUCED, OF_TOPICS + OF_PARTITIONS)
    tell(stories, kind, World.produced)


@pytest.mark.parametrize("kind", [GroupRig, Guarded])
def test_offset_commit(kind: type[Rig]) -> None:
    changes = OF_TOPICS + (OF_MEMBERS if kind is GroupRig else [])
    tell(stories_of(PLAIN_COMMIT, OTHERWISE_COMMITTED, changes), kind, World.committed)


@pytest.mark.parametrize("spoiled", [with_more_behind, with_a_tag_of_the_partition])
def test_where_a_head_ends_is_not_counted_from_the_end_of_its_frame(spoiled: Any) -> None:
    """Three bytes more at the end: counted so, the third byte of the batch would be its length."""
    asked = PLAIN_PRODUCE | {"spoiled": spoiled, "base": 70 << 40}
    between: list[tuple[str, Asked | None]] = [("nothing", PLAIN_PRODUCE), ("nothing", None)]
    assert live((asked, between), GroupRig, World.produced) > 0


def test_every_recognized_request_has_its_stories() -> None:
    assert [row.messages for row in RECOGNIZED] == [produce, offset_commit]
