"""A quorum in the simulator: members, their messages and flushes, and the faults that hit them.

A host performs the effects of the machine, and here the host is virtual: requests and responses go
through the `Network`, flushes take a while, and a crash keeps only what was flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.consensus.batches import metadata_batch
from headrace.node.consensus.quorum.effects import (
    Committed,
    Deposed,
    Effect,
    Elected,
    Flush,
    Reply,
    Send,
    SnapshotInstalled,
    Truncated,
)
from headrace.node.consensus.quorum.machine import Quorum, Timeouts
from headrace.node.consensus.quorum.messages import Response, VoteRequest, VoteResponse
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.snapshots import read_snapshot
from headrace.node.consensus.voters import Voter
from headrace.node.simulator.checkers import QuorumChecker
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.faults import Character, Moment
from headrace.node.simulator.memory_log import MemoryLog, StoredBatch
from headrace.node.simulator.network import Network
from headrace.node.simulator.quorum_member import ADDRESSES_PER_NODE, METADATA_VERSION, Member
from headrace.node.simulator.world import World
from headrace.wire.protocol.messages.producer_ids_record import ProducerIdsRecord


class QuorumCluster:
    def __init__(
        self,
        world: World,
        *,
        voters: int = 3,
        observers: int = 0,
        kraft_version: int = 1,
        character: Character | None = None,
    ) -> None:
        self.world = world
        self.character = character or Character()
        self.counters = Counters()
        self.network = Network(world, self.counters)
        self.checker = QuorumChecker()
        self.kraft_version = kraft_version
        self.members: dict[int, Member] = {}
        self._first_voters: tuple[Voter, ...] = ()
        self._appends = 0
        for node in range(1, voters + observers + 1):
            self.members[node] = Member(node, None, log=self.new_log())
        first = [self.members[node].as_voter for node in range(1, voters + 1)]
        if kraft_version == 0:  # configured voters have no directories
            first = [Voter(voter.id, endpoints=voter.endpoints) for voter in first]
        self._first_voters = tuple(first)
        for node, member in self.members.items():
            if kraft_version == 0 or node <= voters:
                member.formatted = VoterHistory(self._first_voters, kraft_version)
            self.start(member)

    def new_log(self) -> MemoryLog:
        return MemoryLog(self.character.batches_per_read)

    # Nodes

    def start(self, member: Member) -> None:
        formatted = member.formatted is not None
        voters = self._first_voters if formatted else ()
        history, digest = member.load_voters(VoterHistory(voters, self.kraft_version))
        member.life += 1
        member.applied = 0
        if digest is not None:
            self._load_snapshot(member, digest)
        member.quorum = Quorum(
            member.key,
            member.endpoints,
            log=member.log,
            state_file=member.state,
            voters=history,
            bootstrap=tuple(
                point for v in self._first_voters for point in self.members[v.id].endpoints
            ),
            timeouts=self._timeouts(),
            chance=self._chance,
        )
        member.quorum.start(self.world.now)
        self.perform(member)

    def _timeouts(self) -> Timeouts:
        election_ms = self.character.election_ms
        return Timeouts(
            election_ms=election_ms,
            fetch_ms=2 * election_ms,
            election_backoff_max_ms=election_ms,
            request_ms=2 * election_ms,
            retry_backoff_ms=max(election_ms // self.character.retries_per_election, 1),
            fetch_wait_ms=election_ms // 2,
        )

    def _chance(self, below: int) -> int:
        return 0 if self.world.happens(self.character.ties) else self.world.chance.randrange(below)

    def _load_snapshot(self, member: Member, digest: bytes) -> None:
        latest = member.log.latest_snapshot()
        assert latest is not None
        self.checker.snapshot_loaded(member.id, latest.end_offset, digest)
        member.applied = latest.end_offset

    def power_cut(self, only_moves: Member | None = None) -> None:
        """All nodes crash at once, and restart when the power returns for all of them at once. With
        `only_moves` no other node restarts at another address."""
        self.counters.power_cuts += 1
        down_ms = self.world.chance.randint(1, self.character.down_ms)
        for member in self.members.values():
            self.crash(member, down_ms, may_move=only_moves in (None, member))

    def crash(self, member: Member, down_ms: int | None = None, *, may_move: bool = True) -> None:
        """Crash a member: it loses what was not flushed and restarts after a while, perhaps at
        another address."""
        if member.quorum is None:
            return
        self.counters.crashes += 1
        agree_on_voters = self.agree_on_voters()
        if member.log.crash(self.world.chance):
            self.counters.crashes_with_unflushed_bytes += 1
        member.quorum = None
        for respond in list(member.unanswered_requests.values()):
            respond(None)  # its connections break
        member.unanswered.clear()
        member.wakes_at_ms = None
        member.paused_until_ms = 0
        if agree_on_voters and self.world.happens(self.character.moves) and may_move:
            self.counters.moved_nodes += 1
            member.moves += 1
        away_ms = down_ms or self.world.chance.randint(1, self.character.down_ms)
        self.world.at(away_ms, lambda: self.start(member))

    def pause(self, member: Member, for_ms: int) -> None:
        """Stop a member for a while, as by SIGSTOP; then it handles everything at once."""
        self.counters.pauses += 1
        member.paused_until_ms = self.world.now_ms + for_ms

    def _later(self, member: Member, delay_ms: int, do: Callable[[Quorum], None]) -> None:
        """Run `do` in this life of the member, when it is not paused."""
        life = member.life

        def run() -> None:
            if member.quorum is None or member.life != life:
                return
            wait_ms = member.paused_until_ms - self.world.now_ms
            if wait_ms > 0:
                self.world.at(wait_ms, run)
                return
            do(member.quorum)
            self.perform(member)

        self.world.at(delay_ms, run)

    # Effects

    def perform(self, member: Member) -> None:
        quorum = member.quorum
        if quorum is None:
            return  # it died of what this was an answer to
        effects, quorum.effects = quorum.effects, []
        for effect in effects:
            moment = self._perform_one(member, quorum, effect)
            if moment is not None and self._dies_at(moment):
                self.crash(member)
                return
        self._wake_in_time(member, quorum)

    def _dies_at(self, moment: Moment) -> bool:
        return self.world.happens((self.character.deaths or {}).get(moment, 0.0))

    def _perform_one(self, member: Member, quorum: Quorum, effect: Effect) -> Moment | None:
        match effect:
            case Send():
                self._send(member, effect)
                if isinstance(effect.request, VoteRequest) and not effect.request.pre_vote:
                    return Moment.STOOD
            case Reply():
                effect.token(effect.response)
                if isinstance(effect.response, VoteResponse) and effect.response.granted:
                    return Moment.VOTED
            case Flush():
                self._flush(member)
            case Elected():
                self.counters.elections += 1
                self.checker.elected(member.id, effect.epoch)
                return Moment.ELECTED
            case Deposed():
                member.unanswered.clear()
            case Truncated():
                self.counters.truncations += 1
                return Moment.TRUNCATED
            case Committed():
                self._commit(member, quorum, effect.high_watermark)
                return Moment.COMMITTED
            case SnapshotInstalled():
                self.counters.snapshots_installed += 1
                self._load_installed(member)
        return None

    def _load_installed(self, member: Member) -> None:
        latest = member.log.latest_snapshot()
        assert latest is not None
        snapshot = read_snapshot(member.log.snapshots[latest], latest.file_name)
        self._load_snapshot(member, bytes.fromhex(snapshot.records[0].name))

    def _commit(self, member: Member, quorum: Quorum, high_watermark: int) -> None:
        if isinstance(quorum.role, Leader):
            self.counters.commits += 1
        member.applied = self.checker.committed(
            member.id, member.log.batches, member.applied, high_watermark
        )
        voters = quorum.voters.before(high_watermark).voters
        self.checker.voters_known(member.id, high_watermark, voters)
        while member.unanswered and member.unanswered[0].end_offset <= high_watermark:
            self.acknowledge(member.unanswered.pop(0))

    def acknowledge(self, batch: StoredBatch) -> None:
        self.counters.acknowledged += 1
        self.checker.acknowledge(batch)

    def _flush(self, member: Member) -> None:
        character = self.character
        times_ms = character.slow_flush_ms if member.id % 2 else character.flush_ms
        flush = member.log.begin_flush()

        def done(quorum: Quorum) -> None:
            member.log.end_flush(flush)
            quorum.flushed(self.world.now)
            if self._dies_at(Moment.FLUSHED) and isinstance(quorum.role, Leader):
                self.perform(member)
                self.crash(member)

        self._later(member, self.world.chance.choice(times_ms), done)

    def _wake_in_time(self, member: Member, quorum: Quorum) -> None:
        wake_ms = quorum.next_ms(self.world.now_ms)
        if member.wakes_at_ms is not None and member.wakes_at_ms <= wake_ms:
            return
        member.wakes_at_ms = wake_ms

        def wake(quorum: Quorum) -> None:
            if member.wakes_at_ms == wake_ms:  # else an earlier moment has taken its place
                member.wakes_at_ms = None
                quorum.tick(self.world.now)

        self._later(member, wake_ms - self.world.now_ms, wake)

    # Messages

    def _send(self, member: Member, send: Send) -> None:
        """Carry the request to its node and the response back; a connection to a node that is down
        breaks, and the sender notices it."""
        port = send.endpoints[0].port
        target = self.members[port // ADDRESSES_PER_NODE]
        life = member.life

        def respond(response: Response | None) -> None:
            def heard(quorum: Quorum) -> None:
                quorum.answered(send.to, send.correlation_id, response, self.world.now)

            def arrives() -> None:
                if member.life == life:
                    self._later(member, 0, heard)

            target.unanswered_requests.pop(token, None)
            self.network.carry(target.id, member.id, arrives)

        def receive(quorum: Quorum) -> None:
            target.unanswered_requests[token] = respond
            quorum.receive(send.request, respond, self.world.now)

        def arrives() -> None:
            if target.quorum is None or target.endpoints[0].port != port:
                respond(None)
            else:
                self._later(target, 0, receive)

        token = (member.id, life, send.correlation_id)
        self.network.carry(member.id, target.id, arrives)

    def request(self, member: Member, request: Any, answered: Callable[[Response], None]) -> None:
        """A client's or an administrator's request, which gets there."""
        if member.quorum is not None:
            member.quorum.receive(request, answered, self.world.now)
            self.perform(member)

    # Clients

    def append(self) -> None:
        """Append, as a client, on every node that believes to lead."""
        for member in self.leaders():
            if member.paused_until_ms <= self.world.now_ms:
                self.append_at(member)

    def append_at(self, member: Member) -> StoredBatch:
        quorum = member.quorum
        assert quorum is not None
        self._appends += 1
        data = metadata_batch(
            [ProducerIdsRecord(broker_id=member.id, next_producer_id=self._appends)],
            base_offset=quorum.log.end_offset,
            epoch=quorum.epoch,
            wall_ms=self.world.now.wall_ms,
            metadata_version=METADATA_VERSION,
        )
        quorum.append(data, self.world.now)
        batch = member.log.batches[-1]
        member.unanswered.append(batch)
        self.perform(member)
        return batch

    def take_snapshot(self, member: Member) -> None:
        if member.quorum is not None and member.applied > 0:
            digest = self.checker.digest_at(member.applied)
            if member.take_snapshot(digest, self.world.now.wall_ms):
                self.counters.snapshots_taken += 1

    def agree_on_voters(self) -> bool:
        """Returns whether every node knows the same committed voters, and each of them is as it was
        named.

        Only then may a node lose its disk or return at another address: a quorum does not promise
        to survive more than one at a time, since its voters might not find each other.
        """
        histories = []
        for member in self.members.values():
            if member.quorum is None:
                return False
            history = member.quorum.voters
            if not 0 <= history.latest_offset < member.quorum.high_watermark:
                return False
            histories.append(history.latest)
        current = {member.as_voter for member in self.members.values()}
        voters = histories[0]
        return (
            len(voters) >= 3
            and all(known == voters for known in histories)
            and current.issuperset(voters)
        )

    def leaders(self) -> list[Member]:
        """Returns all members that believe to lead; more than one, if some were cut off or
        paused."""
        return [
            member
            for member in self.members.values()
            if member.quorum is not None and isinstance(member.quorum.role, Leader)
        ]

    def leader(self) -> Member | None:
        """The one with the highest epoch among them."""
        return max(self.leaders(), key=lambda m: m.quorum.epoch if m.quorum else 0, default=None)
