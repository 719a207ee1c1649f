"""A connection that commits again is answered as one that never committed before."""

from typing import Any

import pytest

from headrace.node.broker.recognized.memory import MOST_HEADS
from headrace.node.broker.recognized.offset_commit import LONGEST_HEAD
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import offset_commit
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.repeating import Comer, damaged

GROUP = "g"
OFFSET_COMMIT = offset_commit.API_KEY


class Committer(Comer):
    def __init__(self, folder, *, stays):
        rig = GroupRig(folder)
        rig.find(GROUP)
        self.topic_id = rig.create("orders", partitions=2)
        super().__init__(rig, stays=stays)

    def code(self, frame, version=9):
        _, answer = decode_response(offset_commit, version, memoryview(self.send(frame))[4:])
        return answer.topics[0].partitions[0].error_code

    def places(self):
        return [self.rig.committed(GROUP, "orders", partition) for partition in range(2)]


def request(committer, offset, *, version=9, partition=0, member=("", -1), **more):
    topic, client = more.pop("topic", "orders"), more.pop("client", "me")
    part = offset_commit.OffsetCommitRequestPartition(
        partition, offset, more.pop("epoch", -1), more.pop("note", "")
    )
    by_id = version >= 10
    wanted = offset_commit.OffsetCommitRequestTopic(
        "" if by_id else topic, committer.topic_id if by_id else bytes(16), [part]
    )
    asked = offset_commit.OffsetCommitRequest(GROUP, member[1], member[0], None, -1, [wanted])
    assert not more
    return b"".join(encode_request(offset_commit, version, offset & 0xFFFF, client, asked))


@pytest.fixture
def both(tmp_path):
    return Committer(tmp_path / "stays", stays=True), Committer(tmp_path / "comes", stays=False)


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_decoded_once_and_answered_each_time(both, version, monkeypatch):
    counted = both[0].decodes(OFFSET_COMMIT << 16 | version, monkeypatch)
    for offset in (1, 2**40, 7, 0):
        replies = [one.send(request(one, offset, version=version)) for one in both]
        assert replies[0] == replies[1] != b""
        assert both[0].places() == both[1].places() == [offset, -1]
    assert len(counted) == (1 if version >= 8 else 4)


def test_what_else_a_commit_says_is_told_apart(both):
    ways: list[dict[str, Any]] = [
        {"partition": 0},
        {"partition": 1},
        {"epoch": 3},
        {"note": None},
        {"note": "so far"},
        {"version": 10},
        {"version": 8, "partition": 1},
        {"partition": 2},
        {"topic": "nobody"},
        {"member": ("somebody", 4)},
        {"client": "somebody else"},
    ]
    for number, way in enumerate(ways * 3):
        replies = [one.send(request(one, number, **way)) for one in both]
        assert replies[0] == replies[1], way
        assert both[0].places() == both[1].places(), way


def test_any_byte_changed_and_any_length_is_answered_as_if_it_were_the_first(both):
    good = request(both[0], 5)
    for committer in both:
        committer.send(good)
    for frame in damaged(good):
        replies = [committer.send(frame) for committer in both]
        assert replies[0] == replies[1], frame
        assert both[0].places() == both[1].places(), frame
        for committer in both:  # the memory is there again, whatever became of the connection
            committer.send(good)


def test_who_is_no_member_any_more_is_refused_although_recognized(tmp_path, monkeypatch):
    committer = Committer(tmp_path, stays=True)
    member = committer.rig.stable_group(GROUP)
    counted = committer.decodes(OFFSET_COMMIT << 16 | 9, monkeypatch)
    for offset in (1, 2, 3):
        assert committer.code(request(committer, offset, member=member)) == 0
    assert len(counted) == 1
    committer.rig.leave(GROUP, member[0])
    committer.rig.member(GROUP)
    late = request(committer, 4, member=member)
    assert committer.code(late) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committer.places()[0] == 3


def test_a_commit_that_is_recognized_keeps_the_session_of_its_member(tmp_path):
    committer = Committer(tmp_path, stays=True)
    member = committer.rig.stable_group(GROUP)
    for offset in range(5):
        committer.rig.advance(9_000)  # of a session of ten seconds
        assert committer.code(request(committer, offset, member=member)) == 0
    assert committer.rig.heartbeat(GROUP, *member) == 0


def test_a_topic_that_was_made_again_or_has_grown_is_looked_at_again(tmp_path, monkeypatch):
    committer = Committer(tmp_path, stays=True)
    rig = committer.rig
    counted = committer.decodes(OFFSET_COMMIT << 16 | 9, monkeypatch)
    committer.send(request(committer, 1))
    rig.delete("orders")
    assert committer.code(request(committer, 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    committer.topic_id = rig.create("orders", partitions=2)
    assert committer.code(request(committer, 3)) == 0
    [found] = rig.node.broker.groups.shard_of(GROUP).machine.offsets.of(GROUP).values()
    assert found.topic_id == committer.topic_id
    rig.grow("orders", 3)
    assert committer.code(request(committer, 4)) == 0
    assert committer.code(request(committer, 5)) == 0
    assert len(counted) == 4


def test_a_connection_makes_us_remember_little(both):
    stays = both[0]
    for number in range(MOST_HEADS + 10):
        stays.send(request(stays, 1, client=f"client {number}"))
    assert len(stays.session.remembered.commits.known) <= MOST_HEADS
    known = len(stays.session.remembered.commits.known)
    stays.send(request(stays, 1, client="c" * (LONGEST_HEAD + 1)))
    assert len(stays.session.remembered.commits.known) == known
