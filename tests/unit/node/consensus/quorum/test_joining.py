"""Members that join the voters by themselves (`controller.quorum.auto.join.enable`, KIP-1186)."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import AddVoterRequest, RemoveVoterRequest
from headrace.node.consensus.quorum.roles import Follower
from headrace.node.simulator.quorum_cluster import QuorumCluster
from headrace.node.simulator.quorum_member import Member
from headrace.node.simulator.world import World


class Growing:
    """One voter, and observers that want to vote."""

    def __init__(self, *, voters: int = 1, observers: int, kraft_version: int = 1) -> None:
        self.world = World(seed=1)
        self.cluster = QuorumCluster(
            self.world, voters=voters, observers=observers, kraft_version=kraft_version
        )
        for member in self.cluster.members.values():
            assert member.quorum is not None
            member.quorum.joins_by_itself = True

    def run_until(self, *voters: int) -> None:
        for _ in range(200):
            self.world.run(100)
            if [voter.id for voter in self.voters()] == list(voters):
                return
        raise AssertionError(f"they are {self.voters()}")

    def remove(self, node: int) -> Member:
        leader, member = self.cluster.leader(), self.cluster.members[node]
        assert leader is not None
        self.cluster.request(leader, RemoveVoterRequest(member.key), lambda response: None)
        return member

    def add(self, member: Member) -> None:
        leader = self.cluster.leader()
        assert leader is not None
        request = AddVoterRequest(member.key, member.endpoints, timeout_ms=5_000)
        self.cluster.request(leader, request, lambda response: None)

    def crash(self, member: Member) -> None:
        """Kill a member; after its restart it would join by itself, and has time to."""
        self.cluster.crash(member, down_ms=1_000)
        self.world.run(1_500)
        assert member.quorum is not None
        member.quorum.joins_by_itself = True
        self.world.run(10_000)

    def voters(self) -> list[Member]:
        leader = self.cluster.leader()
        if leader is None or leader.quorum is None:
            return []
        latest = leader.quorum.voters.latest
        return [self.cluster.members[voter.id] for voter in sorted(latest, key=lambda v: v.id)]


def test_observers_become_voters_one_after_the_other() -> None:
    growing = Growing(observers=2)
    growing.run_until(1, 2, 3)
    growing.world.run(5_000)
    leader = growing.cluster.leader()
    assert leader is not None and leader.quorum is not None
    assert leader.quorum.voters.latest_offset < leader.quorum.high_watermark, "it is committed"
    end = leader.quorum.log.end_offset
    growing.world.run(10_000)
    assert leader.quorum.log.end_offset == end, "nobody asks again"


def test_a_member_that_is_not_told_to_stays_an_observer() -> None:
    growing = Growing(observers=1)
    observer = growing.cluster.members[2].quorum
    assert observer is not None
    observer.joins_by_itself = False
    growing.world.run(10_000)
    assert [voter.id for voter in growing.voters()] == [1]
    assert isinstance(observer.role, Follower)


def test_configured_voters_are_never_changed() -> None:
    growing = Growing(observers=1, kraft_version=0)
    growing.world.run(10_000)
    assert [voter.id for voter in growing.voters()] == [1]


def test_a_voter_that_lost_its_disk_comes_back_as_another_and_never_votes_as_the_old_one() -> None:
    growing = Growing(voters=3, observers=0)
    growing.world.run(5_000)
    leader = growing.cluster.leader()
    assert leader is not None
    lost = next(member for member in growing.cluster.members.values() if member is not leader)
    before = lost.key
    growing.cluster.crash(lost, down_ms=1_000)
    lost.lose_disk(growing.cluster.new_log())
    growing.world.run(1_500)
    assert lost.quorum is not None and lost.key != before
    assert not lost.quorum.is_voter
    lost.quorum.joins_by_itself = True
    growing.world.run(10_000)
    assert leader.quorum is not None
    voters = {(voter.id, voter.directory_id) for voter in leader.quorum.voters.latest}
    assert lost.key in voters and before not in voters and len(voters) == 3


def test_a_voter_that_was_removed_does_not_ask_again_even_after_restarts() -> None:
    growing = Growing(observers=1)
    growing.run_until(1, 2)
    growing.world.run(5_000)
    removed = growing.remove(2)
    growing.run_until(1)
    growing.world.run(10_000)
    for _ in range(2):
        assert [voter.id for voter in growing.voters()] == [1]
        growing.cluster.take_snapshot(removed)  # then its log does not say that it has voted
        growing.crash(removed)
    assert [voter.id for voter in growing.voters()] == [1]


def test_a_voter_that_was_removed_while_it_was_down_does_not_ask_again() -> None:
    growing = Growing(voters=2, observers=1)
    growing.run_until(1, 2, 3)
    growing.world.run(5_000)
    leader = growing.cluster.leader()
    assert leader is not None
    absent = next(member for member in growing.cluster.members.values() if member is not leader)
    growing.cluster.crash(absent, down_ms=5_000)
    growing.remove(absent.id)
    growing.world.run(1_000)
    growing.cluster.append()
    growing.world.run(1_000)
    growing.cluster.take_snapshot(leader)
    growing.world.run(5_000)
    assert absent.quorum is not None
    absent.quorum.joins_by_itself = True
    growing.world.run(10_000)
    assert absent.id not in [voter.id for voter in growing.voters()]


def test_a_voter_that_an_operator_added_again_forgets_that_it_was_removed() -> None:
    growing = Growing(observers=1)
    growing.run_until(1, 2)
    growing.world.run(5_000)
    removed = growing.remove(2)
    growing.run_until(1)
    growing.world.run(5_000)
    growing.add(removed)
    growing.run_until(1, 2)
    growing.world.run(5_000)
    growing.crash(removed)
    assert removed.quorum is not None and not removed.quorum.noted.was_removed
