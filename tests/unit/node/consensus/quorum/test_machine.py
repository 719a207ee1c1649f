"""What one member answers, in a quorum of real machines on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.node.consensus.quorum.believable_epochs import (
    FORGOTTEN_EPOCHS,
    LAST_EPOCH,
    MOST_AHEAD,
    is_believable,
)
from headrace.node.consensus.quorum.machine import Quorum
from headrace.node.consensus.quorum.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from headrace.node.consensus.quorum.quorum_status import status_of
from headrace.node.consensus.quorum.roles import Follower, Leader, Resigned
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter
from headrace.node.simulator.memory_log import MemoryState
from headrace.node.simulator.quorum_cluster import QuorumCluster
from headrace.node.simulator.quorum_member import Member
from headrace.node.simulator.world import World
from headrace.wire.protocol.errors import ErrorCode, KafkaError

STRANGER = ReplicaKey(9, b"s" * 16)


class Led:
    """A quorum that has found its leader."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(seed=1)
        self.cluster = QuorumCluster(self.world, **settings)
        self.world.run(5_000)
        leader = self.cluster.leader()
        assert leader is not None
        self.leader: Member = leader

    @property
    def quorum(self) -> Quorum:
        assert self.leader.quorum is not None
        return self.leader.quorum

    @property
    def followers(self) -> list[Member]:
        return [member for member in self.cluster.members.values() if member is not self.leader]

    def ask(self, member: Member, request: Any, run_ms: int = 0) -> Any:
        heard: list[Response] = []
        self.cluster.request(member, request, heard.append)
        self.world.run(run_ms)
        assert len(heard) == 1, "one answer"
        return heard[0]

    def fetch(self, **changed: Any) -> FetchRequest:
        fields: dict[str, Any] = {
            "replica": STRANGER,
            "epoch": self.quorum.epoch,
            "offset": self.quorum.log.end_offset,
            "last_epoch": self.quorum.log.last_epoch,
            "max_wait_ms": 0,
        }
        return FetchRequest(**(fields | changed))


def test_a_fetch_names_the_right_epoch_and_goes_to_the_leader() -> None:
    led = Led()
    epoch = led.quorum.epoch
    assert led.ask(led.leader, led.fetch(epoch=epoch - 1)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert led.ask(led.leader, led.fetch(epoch=epoch + 1)).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    response = led.ask(led.followers[0], led.fetch())
    assert response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.leader_id == led.leader.id, "and says where to go"
    assert response.endpoints == led.leader.endpoints


def test_a_fetch_that_finds_nothing_new_waits_for_records_or_its_time() -> None:
    led = Led()
    heard: list[FetchResponse] = []
    fetch = led.fetch(max_wait_ms=400, high_watermark=led.quorum.high_watermark)
    led.cluster.request(led.leader, fetch, heard.append)  # type: ignore[arg-type]
    led.world.run(300)
    assert not heard
    batch = led.cluster.append_at(led.leader)
    assert heard[0].records == batch.data
    heard.clear()
    fetch = led.fetch(max_wait_ms=400, high_watermark=99)
    led.cluster.request(led.leader, fetch, heard.append)  # type: ignore[arg-type]
    led.world.run(399)
    assert not heard
    led.world.run(10)
    assert heard[0].records == b"" and heard[0].error == ErrorCode.NONE


def test_fetches_that_wait_are_refused_when_the_leader_resigns() -> None:
    led = Led()
    heard: list[FetchResponse] = []
    fetch = led.fetch(max_wait_ms=10_000, high_watermark=99)
    led.cluster.request(led.leader, fetch, heard.append)  # type: ignore[arg-type]
    led.quorum.resign(led.world.now)
    led.cluster.perform(led.leader)
    assert heard[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(led.quorum.role, Resigned)


def test_after_a_leader_resigns_the_voter_with_the_longest_log_leads_at_once() -> None:
    led = Led()
    behind = led.followers[0]
    led.cluster.network.isolate(behind.id, led.cluster.members, sends=True, hears=False)
    led.cluster.append_at(led.leader)
    led.world.run(100)
    led.cluster.network.heal()
    led.quorum.resign(led.world.now)
    led.cluster.perform(led.leader)
    led.world.run(100)
    assert led.cluster.leader() is led.followers[1]


def test_a_vote_is_for_this_replica() -> None:
    led = Led()
    follower = led.followers[0]
    epoch = led.quorum.epoch + 1
    other_disk = ReplicaKey(follower.id, b"x" * 16)
    vote = VoteRequest(epoch, STRANGER, 99, 99, False, other_disk)
    vote.last_epoch = epoch - 1
    assert led.ask(follower, vote).error == ErrorCode.INVALID_VOTER_KEY
    vote.voter = None  # as version 0 sends it
    response = led.ask(follower, vote)
    assert isinstance(response, VoteResponse) and response.granted
    vote.candidate = ReplicaKey(8, b"t" * 16)
    assert not led.ask(follower, vote).granted, "one vote per epoch"
    vote.epoch = 0
    vote.last_epoch = -1
    assert led.ask(follower, vote).error == ErrorCode.INVALID_REQUEST


def test_an_old_leader_cannot_begin_or_end_an_epoch() -> None:
    led = Led()
    follower = led.followers[0]
    assert follower.quorum is not None
    begin = BeginEpochRequest(0, STRANGER.id, (), None)
    end = EndEpochRequest(0, STRANGER.id, (), ())
    for request in (begin, end):
        assert led.ask(follower, request).error == ErrorCode.FENCED_LEADER_EPOCH
    assert follower.quorum.leader_id == led.leader.id


def test_a_snapshot_that_is_not_there() -> None:
    led = Led()
    led.cluster.append_at(led.leader)
    led.world.run(1_000)
    led.cluster.take_snapshot(led.leader)
    known = led.leader.log.latest_snapshot()
    assert known is not None
    request = FetchSnapshotRequest(STRANGER, led.quorum.epoch, SnapshotId(1, 1), 0, 100)
    assert led.ask(led.leader, request).error == ErrorCode.SNAPSHOT_NOT_FOUND
    request.snapshot_id, request.position = known, 1 << 20
    assert led.ask(led.leader, request).error == ErrorCode.POSITION_OUT_OF_RANGE
    request.position = 3
    response = led.ask(led.leader, request)
    assert response.data == led.leader.log.snapshots[known][3:103]


def test_a_follower_takes_whole_batches_and_counts_damage() -> None:
    led = Led()
    follower = led.followers[0]
    quorum = follower.quorum
    assert quorum is not None
    led.cluster.network.cut(led.leader.id, follower.id)
    whole = led.cluster.append_at(led.leader).data
    cut = led.cluster.append_at(led.leader).data[:-1]
    role, end = quorum.role, quorum.log.end_offset
    assert isinstance(role, Follower)

    def answer(records: bytes) -> None:
        request = FetchRequest(follower.key, quorum.epoch, end, quorum.log.last_epoch, 0)
        number = quorum.in_flight.begin(role.leader_id, request, led.world.now_ms)
        response = FetchResponse(
            ErrorCode.NONE, quorum.epoch, role.leader_id, role.endpoints, records=records
        )
        quorum.answered(role.leader_id, number, response, led.world.now)

    answer(whole[:-1] + b"!")
    assert quorum.damaged_responses == 1 and quorum.log.end_offset == end
    answer(whole + cut)
    assert quorum.damaged_responses == 1 and quorum.log.end_offset == end + 1


# ---- voters


def add(member: Member) -> AddVoterRequest:
    return AddVoterRequest(member.key, member.endpoints, timeout_ms=1_000)


def test_a_voter_is_added_and_removed() -> None:
    led = Led(observers=1)
    newcomer = led.cluster.members[4]
    response = led.ask(led.leader, add(newcomer), 1_000)
    assert isinstance(response, VoterChangeResponse) and response.error == ErrorCode.NONE
    assert [voter.id for voter in led.quorum.voters.latest] == [1, 2, 3, 4]
    assert led.ask(led.leader, add(newcomer)).error == ErrorCode.DUPLICATE_VOTER
    response = led.ask(led.leader, RemoveVoterRequest(newcomer.key), 1_000)
    assert response.error == ErrorCode.NONE
    assert [voter.id for voter in led.quorum.voters.latest] == [1, 2, 3]


def test_a_voter_can_be_acknowledged_before_the_record_is_committed() -> None:
    led = Led(observers=1)
    request = add(led.cluster.members[4])
    request.ack_when_committed = False
    for follower in led.followers[:2]:
        led.cluster.pause(follower, 1_000)
    assert led.ask(led.leader, request, 20).error == ErrorCode.NONE
    assert led.quorum.voters.latest_offset >= led.quorum.high_watermark


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda led: RemoveVoterRequest(STRANGER), ErrorCode.VOTER_NOT_FOUND),
        (lambda led: RemoveVoterRequest(ReplicaKey(1)), ErrorCode.INVALID_REQUEST),
        (lambda led: AddVoterRequest(STRANGER, (), 1_000), ErrorCode.INVALID_REQUEST),
        (
            lambda led: UpdateVoterRequest(
                led.quorum.epoch, Voter(9, b"s" * 16, led.leader.endpoints)
            ),
            ErrorCode.VOTER_NOT_FOUND,
        ),
        (
            lambda led: UpdateVoterRequest(led.quorum.epoch, led.followers[0].as_voter),
            ErrorCode.NONE,
        ),
        (
            lambda led: UpdateVoterRequest(led.quorum.epoch - 1, led.followers[0].as_voter),
            ErrorCode.FENCED_LEADER_EPOCH,
        ),
    ],
)
def test_a_change_of_voters_is_looked_at(
    request_of: Callable[[Led], Any], error: ErrorCode
) -> None:
    led = Led()
    end = led.quorum.log.end_offset
    assert led.ask(led.leader, request_of(led)).error == error
    assert led.quorum.log.end_offset == end, "nothing is written"


def test_only_the_leader_changes_voters_and_only_with_kraft_version_1() -> None:
    led = Led(observers=1)
    newcomer = led.cluster.members[4]
    response = led.ask(led.followers[0], add(newcomer))
    assert response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    static = Led(kraft_version=0, observers=1)
    assert static.ask(static.leader, add(newcomer)).error == ErrorCode.UNSUPPORTED_VERSION


def test_a_voter_that_has_not_caught_up_is_not_added() -> None:
    led = Led(observers=1)
    newcomer = led.cluster.members[4]
    led.quorum.leadership._role.progress.clear()
    newcomer.paused_until_ms = 0
    led.cluster.network.cut(newcomer.id, led.leader.id)
    response = led.ask(led.leader, add(newcomer), 3_000)
    assert response.error == ErrorCode.REQUEST_TIMED_OUT
    assert [voter.id for voter in led.quorum.voters.latest] == [1, 2, 3]


def test_a_voter_that_comes_back_at_another_address_tells_the_leader() -> None:
    led = Led()
    follower = led.followers[0]
    led.cluster.crash(follower)
    follower.moves += 1
    led.world.run(6_000)
    assert follower.as_voter in led.quorum.voters.latest


def test_the_last_voter_stays() -> None:
    led = Led(voters=1)
    assert (
        led.ask(led.leader, RemoveVoterRequest(led.leader.key)).error == ErrorCode.VOTER_NOT_FOUND
    )


def test_one_voter_leads_without_waiting() -> None:
    world = World(seed=1)
    cluster = QuorumCluster(world, voters=1)
    assert cluster.leader() is cluster.members[1]
    world.run(5)
    leader = cluster.members[1].quorum
    assert leader is not None and leader.high_watermark == leader.log.end_offset == 3


def test_configured_voters_know_each_other_by_id_alone() -> None:
    led = Led(kraft_version=0)
    led.cluster.append_at(led.leader)
    led.world.run(1_000)
    assert led.quorum.high_watermark == led.quorum.log.end_offset == 2, "no VotersRecord"
    assert all(isinstance(m.quorum and m.quorum.role, Follower) for m in led.followers)


# ---- status


def test_the_leader_knows_how_far_everybody_is() -> None:
    led = Led(observers=1)
    led.cluster.append_at(led.leader)
    led.world.run(2_000)
    now = led.world.now
    status = status_of(led.quorum, now)
    assert status is not None and isinstance(led.quorum.role, Leader)
    end = led.quorum.log.end_offset
    assert (status.leader_id, status.epoch) == (led.leader.id, led.quorum.epoch)
    assert status.high_watermark == end
    assert [(replica.key.id, replica.end_offset) for replica in status.voters] == [
        (1, end),
        (2, end),
        (3, end),
    ]
    assert [replica.key.id for replica in status.observers] == [4]
    for replica in status.voters + status.observers:
        assert now.wall_ms - 1_000 < replica.last_caught_up_wall_ms <= now.wall_ms
    assert status_of(led.followers[0].quorum, now) is None


# ---- epochs that no honest quorum has


@pytest.mark.parametrize("epoch", [(1 << 31) - 1, (1 << 31) - 2, 2_000_000])
def test_an_epoch_far_ahead_is_refused_and_changes_nothing(epoch: int) -> None:
    led = Led()
    known = led.quorum.epoch
    requests = [
        VoteRequest(epoch, STRANGER, 0, 1_000, pre_vote=False, voter=None),
        VoteRequest(epoch, STRANGER, 0, 1_000, pre_vote=True, voter=None),
        BeginEpochRequest(epoch, STRANGER.id, (), None),
        EndEpochRequest(epoch, STRANGER.id, (), ()),
    ]
    for member in led.cluster.members.values():
        for request in requests:
            assert led.ask(member, request).error == ErrorCode.INVALID_REQUEST
    led.world.run(5_000)
    assert led.cluster.leader() is led.leader and led.quorum.epoch == known
    assert led.quorum.unbelievable_epochs == len(requests)


def test_a_member_that_was_away_for_many_elections_is_believed() -> None:
    led = Led()
    ahead = led.quorum.epoch + MOST_AHEAD
    vote = VoteRequest(ahead, STRANGER, 0, 0, pre_vote=False, voter=None)
    assert led.ask(led.leader, vote).error == ErrorCode.NONE
    led.world.run(10_000)
    leader = led.cluster.leader()
    assert leader is not None and leader.quorum is not None
    assert leader.quorum.epoch > ahead, "the quorum goes on behind it"


def test_a_member_without_a_log_believes_any_epoch_that_has_a_successor() -> None:
    assert is_believable(LAST_EPOCH, 0, has_log=False)
    assert not is_believable(LAST_EPOCH + 1, 0, has_log=False)
    assert not is_believable(LAST_EPOCH, 0, has_log=True)
    assert is_believable(LAST_EPOCH, LAST_EPOCH - 1, has_log=True)


def test_a_voter_that_has_lost_its_votes_does_not_vote_twice_in_an_epoch() -> None:
    led = Led()
    voter, epoch = led.followers[0], led.quorum.epoch + 1
    vote = VoteRequest(epoch, STRANGER, 99, epoch - 1, False, None)
    vote.last_epoch, vote.last_offset = epoch - 1, 99
    assert led.ask(voter, vote).granted
    led.cluster.crash(voter, down_ms=1, may_move=False)
    voter.state = MemoryState()  # `quorum-state` is deleted
    led.world.run(1)
    vote.candidate = ReplicaKey(8, b"t" * 16)
    assert not led.ask(voter, vote).granted
    led.world.run(20_000)
    leader = led.cluster.leader()
    assert leader is not None and leader.quorum is not None, "the quorum goes on"
    assert leader.quorum.epoch > epoch + FORGOTTEN_EPOCHS - 2
    assert voter.quorum is not None and voter.quorum.epoch == leader.quorum.epoch


def test_an_observer_that_has_lost_its_quorum_state_deposes_no_leader() -> None:
    led = Led(observers=1)
    (observer,) = [member for member in led.followers if not member.quorum.is_voter]
    led.cluster.crash(observer, down_ms=1, may_move=False)
    observer.state = MemoryState()
    led.world.run(10_000)
    assert led.cluster.leader() is led.leader
    assert observer.quorum.epoch == led.quorum.epoch


def test_a_follower_whose_disk_takes_no_metadata_is_left_behind_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led = Led()
    follower = led.followers[0].quorum
    assert follower is not None

    def refuse(records: bytes, *, wall_ms: int) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(follower.log, "append", refuse)
        assert not follower.is_left_behind(), "nothing was refused yet"
        led.cluster.append_at(led.leader)
        led.world.run(5_000)
        assert follower.is_left_behind()
        assert not led.quorum.is_left_behind()
    led.world.run(5_000)
    assert follower.high_watermark == led.quorum.high_watermark and not follower.is_left_behind()
