"""One run of the quorum: blows from a seed, then calm, and everything must be well again."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
)
from headrace.node.consensus.quorum.voter_history import key_of
from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.faults import Blow, Character, character
from headrace.node.simulator.quorum_cluster import QuorumCluster
from headrace.node.simulator.quorum_member import Member
from headrace.node.simulator.world import World
from headrace.wire.protocol.errors import ErrorCode

BLOWS = 100
CALM_MS = 60_000  # within this after the last fault, a leader has committed on every node
STEP_MS = 1_000
MOST_VOTERS = 5


def run_seed(seed: int) -> Counters:
    """Raises Violation, or what the machine raises when it sees that a promise was broken."""
    run = QuorumRun(seed)
    for _ in range(BLOWS):
        run.strike()
    run.end_well()
    run.cluster.counters.events = run.world.events
    return run.cluster.counters


class QuorumRun:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        chance = self.world.chance
        drawn = character(chance)
        self.cluster = QuorumCluster(
            self.world,
            voters=drawn.voters,
            observers=drawn.observers,
            kraft_version=chance.choice((0, 1, 1)),
            character=drawn,
        )
        network = self.cluster.network
        network.loss, network.duplication = drawn.loss, drawn.duplication
        network.delays_ms = drawn.delays_ms
        self._lost: set[ReplicaKey] = set()  # voters whose disks are gone

    # Faults

    def strike(self) -> None:
        cluster, chance = self.cluster, self.world.chance
        self.world.run(self._scaled(chance.choice(cluster.character.pace_ms)))
        member = chance.choice(list(cluster.members.values()))
        match chance.choice(cluster.character.blows):
            case Blow.APPEND:
                for _ in range(chance.choice((1, 1, 1, 5))):
                    cluster.append()
            case Blow.CRASH:
                cluster.crash(member)
            case Blow.POWER_CUT:
                cluster.power_cut()
            case Blow.PAUSE:
                cluster.pause(member, self._scaled(chance.choice((100, 3_000, 10_000))))
            case Blow.CUT_PAIR:
                one, other = chance.sample(list(cluster.members), 2)
                self._cut([(one, other), (other, one)])
            case Blow.CUT_ONE_WAY:
                one, other = chance.sample(list(cluster.members), 2)
                self._cut([(one, other)])
            case Blow.CUT_NODE:
                self._isolate(member)
            case Blow.CUT_LEADER:
                self._isolate(cluster.leader() or member)
            case Blow.HEAL:
                cluster.network.heal()
            case Blow.SNAPSHOT:
                cluster.take_snapshot(member)
            case Blow.CHANGE_VOTERS:
                self._administer(member)
            case Blow.LOSE_DISK:
                self._lose_disk(member)
            case Blow.RESIGN:
                leader = cluster.leader()
                if leader is not None and leader.quorum is not None:
                    leader.quorum.resign(self.world.now)
                    cluster.perform(leader)

    def _scaled(self, time_ms: int) -> int:
        """Scale a time to that of elections: with quicker elections, faults come quicker too."""
        return max(time_ms * self.cluster.character.election_ms // 1_000, 1)

    def _cut(self, ways: list[tuple[int, int]]) -> None:
        self.cluster.counters.cuts += 1
        for source, target in ways:
            self.cluster.network.cut(source, target)

    def _isolate(self, member: Member) -> None:
        self.cluster.counters.cuts += 1
        sends, hears = self.world.chance.choice(((False, False), (True, False), (False, True)))
        self.cluster.network.isolate(member.id, self.cluster.members, sends=sends, hears=hears)

    def _lose_disk(self, member: Member) -> None:
        """Lose one disk, in some runs by a power cut of all nodes. No other node may return at
        another address then: a voter without its disk and one that others cannot find make two
        failures."""
        cluster = self.cluster
        if not cluster.agree_on_voters():
            return
        cluster.counters.lost_disks += 1
        self._lost.add(member.key)
        if self.world.happens(0.5):
            cluster.power_cut(only_moves=member)
        else:
            cluster.crash(member)
        member.lose_disk(cluster.new_log())

    # Administration

    def _administer(self, member: Member) -> None:
        """Change voters at a node that believes to lead, without waiting for its answers."""
        leaders = self.cluster.leaders()
        if not leaders:
            return
        leader = self.world.chance.choice(leaders)
        self._change_voters(leader, member)
        for _ in range(self.cluster.character.changes_at_once - 1):
            others = list(self.cluster.members.values())
            self._change_voters(leader, self.world.chance.choice(others))

    def _change_voters(self, leader: Member, member: Member) -> None:
        """Remove a voter whose disk is lost, else add or remove the member."""
        cluster = self.cluster
        if leader.quorum is None:
            return
        voters = leader.quorum.voters.latest
        gone = [key_of(voter) for voter in voters if key_of(voter) in self._lost]
        request: Request
        if gone:
            request = RemoveVoterRequest(gone[0])
        elif any(voter != cluster.members[voter.id].as_voter for voter in voters):
            return  # first that one must be known at its new address
        elif any(voter.id == member.id for voter in voters):
            if cluster.character.only_repairs:
                return
            request = RemoveVoterRequest(member.key)
        elif len(voters) < MOST_VOTERS:
            request = AddVoterRequest(member.key, member.endpoints, timeout_ms=5_000)
        else:
            return
        cluster.request(leader, request, self._voters_changed)

    def _voters_changed(self, response: Response) -> None:
        if response.error == ErrorCode.NONE:
            self.cluster.counters.voters_changed += 1

    # The end

    def end_well(self) -> None:
        """The faults end. Then the quorum serves again, every node has every committed record,
        and nothing that was acknowledged is missing."""
        cluster = self.cluster
        drawn = cluster.character
        cluster.character = Character(
            batches_per_read=drawn.batches_per_read,
            election_ms=drawn.election_ms,
            retries_per_election=drawn.retries_per_election,
        )
        cluster.network.calm()
        for member in cluster.members.values():
            member.paused_until_ms = 0
        for _ in range(CALM_MS // STEP_MS):
            self.world.run(STEP_MS)
            before = cluster.counters.acknowledged
            cluster.append()
            self.world.run(STEP_MS)
            if cluster.counters.acknowledged > before and self._disagreement() is None:
                cluster.checker.finish()
                return
        raise Violation(self._disagreement() or "nothing is acknowledged after the faults ended")

    def _disagreement(self) -> str | None:
        cluster = self.cluster
        leaders = cluster.leaders()
        if len(leaders) != 1:
            ids = [member.id for member in leaders]
            return f"nodes {ids} lead after the faults ended"
        end = leaders[0].log.end_offset
        for member in cluster.members.values():
            if member.quorum is None or member.quorum.high_watermark != end:
                at = None if member.quorum is None else member.quorum.high_watermark
                return f"node {member.id} has committed {at} and the leader {end}"
        return None
