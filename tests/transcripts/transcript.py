"""Stories of a quorum in text files: what is done on the left, what is then true on the right.

    pause 1 for 10s
    run 6s                  -> node 2 leads epoch 2

Lines that begin with # are comments. `quorum of N` begins a story; `seed S` before it chooses the
chances, so the same nodes lead every time. What may stand on the left is in COMMANDS, on the
right in FACTS; both are matched as whole lines.
"""

from __future__ import annotations

from pathlib import Path

from headrace.node.consensus.quorum.messages import AddVoterRequest, RemoveVoterRequest, Response
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.simulator.memory_log import StoredBatch
from headrace.node.simulator.quorum_cluster import QuorumCluster
from headrace.node.simulator.quorum_member import Member
from headrace.node.simulator.world import World
from headrace.wire.protocol.errors import ErrorCode
from tests.transcripts.text_story import Phrases, milliseconds, tell_story

ANSWER_MS = 3_000  # how long an administrator waits


class Story:
    def __init__(self) -> None:
        self.seed = 1
        self.appends: dict[str, StoredBatch] = {}  # by the name that the story gives them
        self.answer: Response | None = None
        self._cluster: QuorumCluster | None = None

    @property
    def cluster(self) -> QuorumCluster:
        assert self._cluster is not None, "a story begins with `quorum of N`"
        return self._cluster

    def member(self, node: str) -> Member:
        return self.cluster.members[int(node)]

    # The left side

    def seed_(self, seed: str) -> None:
        self.seed = int(seed)

    def quorum(self, voters: str, observers: str | None) -> None:
        self._cluster = QuorumCluster(
            World(self.seed), voters=int(voters), observers=int(observers or 0)
        )

    def run(self, seconds: str) -> None:
        self.cluster.world.run(milliseconds(seconds))

    def cut(self, node: str) -> None:
        cluster = self.cluster
        cluster.network.isolate(int(node), cluster.members, sends=False, hears=False)

    def heal(self) -> None:
        self.cluster.network.heal()

    def pause(self, node: str, seconds: str) -> None:
        self.cluster.pause(self.member(node), milliseconds(seconds))

    def append(self, name: str, node: str) -> None:
        quorum = self.member(node).quorum
        assert quorum is not None and isinstance(quorum.role, Leader), f"{node} does not lead"
        self.appends[name] = self.cluster.append_at(self.member(node))

    def snapshot(self, node: str) -> None:
        self.cluster.take_snapshot(self.member(node))

    def add_voter(self, node: str) -> None:
        member = self.member(node)
        self._ask(AddVoterRequest(member.key, member.endpoints, ANSWER_MS))

    def remove_voter(self, node: str) -> None:
        self._ask(RemoveVoterRequest(self.member(node).key))

    def _ask(self, request: AddVoterRequest | RemoveVoterRequest) -> None:
        leader = self.cluster.leader()
        assert leader is not None
        self.answer = None
        self.cluster.request(leader, request, self._answered)

    def _answered(self, response: Response) -> None:
        self.answer = response

    # The right side

    def leads(self, node: str, epoch: str) -> None:
        quorum = self.member(node).quorum
        assert quorum is not None and isinstance(quorum.role, Leader), quorum and quorum.role
        assert quorum.epoch == int(epoch), quorum.epoch

    def is_role(self, node: str, role: str) -> None:
        quorum = self.member(node).quorum
        assert quorum is not None
        assert type(quorum.role).__name__ == role, quorum.role

    def acknowledged(self, name: str, negated: str | None) -> None:
        known = self.cluster.checker.is_acknowledged(self.appends[name])
        assert known is (negated is None)

    def has(self, node: str, verb: str, name: str) -> None:
        found = self.appends[name] in self.member(node).log.batches
        assert found is (verb == "has")

    def voters_are(self, nodes: str) -> None:
        for member in self.cluster.members.values():
            assert member.quorum is not None
            voters = {voter.id for voter in member.quorum.voters.latest}
            assert voters == {int(node) for node in nodes.split(", ")}, (member.id, voters)

    def answered(self, name: str) -> None:
        assert self.answer is not None, "no answer yet"
        assert self.answer.error == ErrorCode[name], self.answer

    def starts_at(self, node: str, offset: str) -> None:
        assert self.member(node).log.start_offset == int(offset)

    def everybody_agrees(self) -> None:
        ends = {m.quorum.high_watermark for m in self.cluster.members.values() if m.quorum}
        assert len(ends) == 1 and len({m.log.end_offset for m in self.members()}) == 1, ends

    def members(self) -> list[Member]:
        return list(self.cluster.members.values())


COMMANDS: Phrases = (
    (r"seed (\d+)", Story.seed_),
    (r"quorum of (\d+)(?: with (\d+) observers?)?", Story.quorum),
    (r"run ([\d.]+)s", Story.run),
    (r"cut (\d+)", Story.cut),
    (r"heal", Story.heal),
    (r"pause (\d+) for ([\d.]+)s", Story.pause),
    (r"append (\w+) at (\d+)", Story.append),
    (r"snapshot at (\d+)", Story.snapshot),
    (r"add voter (\d+)", Story.add_voter),
    (r"remove voter (\d+)", Story.remove_voter),
)
FACTS: Phrases = (
    (r"node (\d+) leads epoch (\d+)", Story.leads),
    (r"node (\d+) is (\w+)", Story.is_role),
    (r"(\w+) is (not )?acknowledged", Story.acknowledged),
    (r"node (\d+) (has|lacks) (\w+)", Story.has),
    (r"the voters are ([\d, ]+)", Story.voters_are),
    (r"answer (\w+)", Story.answered),
    (r"the log of node (\d+) begins at (\d+)", Story.starts_at),
    (r"everybody agrees", Story.everybody_agrees),
)


def tell(path: Path) -> None:
    tell_story(path, Story(), commands=COMMANDS, facts=FACTS)
