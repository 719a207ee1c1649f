"""The host of a member: requests by Peers, answers back, and the listener's turn."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import Any

import pytest

from headrace.environment import Address, Now
from headrace.node.consensus.batches import metadata_batch
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.consensus.quorum.machine import Quorum, Timeouts
from headrace.node.consensus.quorum.messages import (
    BeginEpochRequest,
    FetchResponse,
    ReplicaKey,
    VoteResponse,
)
from headrace.node.consensus.quorum.roles import Candidate, Leader, Prospective
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.quorum.wire import epoch_begin, fetches, votes
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.quorum_host import LANE, QuorumHost
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.simulator.memory_log import FlushTicket, MemoryLog, MemoryState
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import begin_quorum_epoch, fetch, vote
from headrace.wire.protocol.messages.no_op_record import NoOpRecord

NAMES = Names("a-cluster", "CONTROLLER")


def voter(node: int) -> Voter:
    return Voter(node, bytes([node]) * 16, (VoterEndpoint("CONTROLLER", f"node{node}", 9093),))


class FlushedLog(MemoryLog):
    """A log in memory with the two calls that a host needs of files."""

    def flush_target(self) -> FlushTicket:
        return self.begin_flush()

    def flushed(self, flush: FlushTicket) -> bool:
        self.end_flush(flush)
        return True


class Host:
    """A host, what it asked of its peers, and what its listener heard."""

    def __init__(self, *voters: int, on_failure: Callable[[OSError], None] | None = None) -> None:
        self.now = Now(0, 1_700_000_000_000)
        self.asked: list[tuple[Address, str, Any, Any, Callable[[Any], None]]] = []
        self.heard: list[tuple[str, int]] = []
        self.wants_flush: list[Any] = []
        self.writes_when_elected = False
        self.reads_no_metadata = False
        log = FlushedLog()
        me = voter(1)
        self.quorum = Quorum(
            ReplicaKey(1, me.directory_id),
            me.endpoints,
            log=log,
            state_file=MemoryState(),
            voters=VoterHistory(tuple(map(voter, voters)), kraft_version=1),
            timeouts=Timeouts(),
            chance=lambda below: 0,
        )
        self.host = QuorumHost(
            self.quorum,
            log,  # type: ignore[arg-type]
            peers=self,
            names=NAMES,
            listener=self,
            wants_flush=self.wants_flush,
            now=lambda: self.now,
            on_failure=on_failure,
        )

    def ask(
        self, to: Address, lane: str, messages: Any, request: Any, answered: Any, **_: Any
    ) -> None:
        self.asked.append((to, lane, messages, request, answered))

    def elected(self, epoch: int) -> None:
        self.heard.append(("elected", epoch))
        if self.writes_when_elected:
            batch = metadata_batch(
                [NoOpRecord()],
                base_offset=self.quorum.log.end_offset,
                epoch=epoch,
                wall_ms=0,
                metadata_version=30,
            )
            self.host.append(batch)

    def deposed(self, epoch: int) -> None:
        self.heard.append(("deposed", epoch))

    def truncated(self, to_offset: int) -> None:
        self.heard.append(("truncated", to_offset))

    def committed(self, high_watermark: int) -> None:
        if self.reads_no_metadata:
            raise UnusableMetadata("the batch at offset 2 fails its checksum")
        self.heard.append(("committed", high_watermark))

    def snapshot_installed(self, end_offset: int) -> None:
        self.heard.append(("snapshot", end_offset))


def test_the_only_voter_leads_and_commits_with_its_flush() -> None:
    here = Host(1)
    here.writes_when_elected = True
    here.host.start()
    assert here.heard == [("elected", 1)] and isinstance(here.quorum.role, Leader)
    assert here.wants_flush == [here.host], "once, although it was asked for twice"
    assert here.host.flushed(here.host.flush_target())
    assert here.heard[1:] == [("committed", 4)], "the listener's own record too"


def test_requests_leave_by_peers_and_answers_come_back() -> None:
    here = Host(1, 2, 3)
    here.host.start()
    assert {lane for _, lane, _, _, _ in here.asked} == {"quorum-fetch"}, "it looks for a leader"
    here.asked.clear()
    here.now.monotonic_ms = 1_000
    assert here.host.tick() > 1_000
    assert isinstance(here.quorum.role, Prospective)
    (to, lane, messages, request, answered), _ = here.asked
    assert (to, lane, messages) == (Address("node2", 9093, "CONTROLLER"), LANE, vote)
    assert request.cluster_id == "a-cluster" and request.topics[0].partitions[0].pre_vote
    answered(votes.encode_response(VoteResponse(ErrorCode.NONE, 0, granted=True)))
    assert isinstance(here.quorum.role, Candidate)


def test_an_answer_that_makes_no_sense_counts_as_none() -> None:
    here = Host(1, 2, 3)
    here.host.start()
    here.asked.clear()
    here.now.monotonic_ms = 1_000
    here.host.tick()
    _, _, _, _, answered = here.asked[0]
    answered(vote.VoteResponse())
    assert here.quorum.damaged_responses == 1
    assert isinstance(here.quorum.role, Prospective)


def test_a_request_for_another_cluster_is_refused() -> None:
    here = Host(1)
    here.host.start()
    with pytest.raises(KafkaError) as refused:
        here.host.receive(fetch, fetch.FetchRequest(cluster_id="another"), lambda answer: None)
    assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID


def follower_of_two(*, on_failure: Any = None) -> Host:
    here = Host(1, 2, 3, on_failure=on_failure)
    here.host.start()
    here.host.receive(begin_quorum_epoch, claim_of(2), lambda answer: None)
    assert here.quorum.leader_id == 2
    return here


def claim_of(leader: int) -> Any:
    begin = BeginEpochRequest(1, leader, voter(leader).endpoints, None)
    return epoch_begin.encode_request(begin, NAMES)


def test_who_claims_to_lead_an_epoch_that_has_a_leader_is_refused_and_ends_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Anybody who reaches the controllers' listener can say so."""
    ended: list[OSError] = []
    here = follower_of_two(on_failure=ended.append)
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            here.host.receive(begin_quorum_epoch, claim_of(3), lambda answer: None)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert not ended and here.quorum.leader_id == 2
    assert caplog.text.count("epoch 1 is led by 2 and by 3") == 1, "said once"


def test_nothing_leaves_a_member_that_heard_of_two_leaders_of_one_epoch() -> None:
    ended: list[OSError] = []
    here = follower_of_two(on_failure=ended.append)
    here.host.tick()
    _, _, _, _, answered = here.asked[-1]
    answered(fetches.encode_response(FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 3)))
    assert [str(each) for each in ended] == ["[Errno 0] epoch 1 is led by 2 and by 3"]
    here.asked.clear()
    here.now.monotonic_ms = 60_000
    here.host.tick()
    assert not here.asked, "it does not stand for election any more"


def test_metadata_that_cannot_be_read_ends_the_node() -> None:
    ended: list[OSError] = []
    here = Host(1, on_failure=ended.append)
    here.host.start()
    here.reads_no_metadata = True
    here.host.flushed(here.host.flush_target())
    assert len(ended) == 1 and "checksum" in str(ended[0])


def test_a_leader_whose_log_is_lost_ends_and_tells_who_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[OSError] = []
    here = Host(1, on_failure=ended.append)
    here.host.start()
    assert here.host.leads
    committed_before = [each for each in here.heard if each[0] == "committed"]

    def lose(batches: bytes, *, wall_ms: int) -> None:
        raise OSError(EIO, "the metadata log cannot be read")

    monkeypatch.setattr(here.quorum.log, "append", lose)
    with pytest.raises(KafkaError) as refused:
        here.host.append(b"")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [failure.errno for failure in ended] == [EIO]
    here.host.tick()
    assert [each for each in here.heard if each[0] == "committed"] == committed_before


def test_a_controller_of_another_cluster_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    here = Host(2, 3)
    here.host.start()
    for _ in range(4):
        here.now.monotonic_ms += 1_000
        here.host.tick()
        for _, _, api, _, answered in here.asked:
            assert api is fetch, "an observer looks for the leader"
            answered(fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        here.asked.clear()
    said = [line for line in caplog.messages if "belongs to another cluster" in line]
    assert len(said) == len({line.split(" belongs")[0] for line in said}) > 0
    assert "a-cluster" in said[0] and "node" in said[0]


def test_a_leader_whose_host_refuses_is_not_waited_for() -> None:
    here = Host(1, 2, 3)
    here.host.start()
    begin = BeginEpochRequest(1, 2, voter(2).endpoints, None)
    here.host.receive(begin_quorum_epoch, epoch_begin.encode_request(begin, NAMES), lambda _: None)
    here.host.is_refused = lambda place: place.host == "node3"
    here.asked[-1][4](None)
    here.now.monotonic_ms = 200
    here.host.tick()
    assert here.quorum.leader_id == 2, "silence has its time"
    here.host.is_refused = lambda place: place.host == "node2"
    here.asked[-1][4](None)
    here.now.monotonic_ms = 202
    here.host.tick()
    assert isinstance(here.quorum.role, Prospective)
