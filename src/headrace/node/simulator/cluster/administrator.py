"""An administrator of a simulated cluster: topics, settings, reassignments, elections, voters.

Every change that was answered with success holds at the end; the outcome of unanswered ones is
unknown.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.environment import Address
from headrace.node.consensus.voters import Voter
from headrace.node.metadata.image import TOPIC_RESOURCE, MetadataImage
from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.character import Action
from headrace.node.simulator.cluster.report import ClusterReport
from headrace.node.simulator.cluster.scripts import Ask, Script, Scripts
from headrace.node.simulator.whole_nodes import CLIENT_PORT, CLUSTER_ID, Member
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_raft_voter,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    remove_raft_voter,
)

TIMEOUT_MS = 8_000
SETTING = "retention.ms"
SMALLEST_SETTING = 1_000_000_000

Steps = Generator[Ask | int, Any, Any]


class Administrator:
    def __init__(
        self,
        scripts: Scripts,
        report: ClusterReport,
        actions: tuple[Action, ...],
        *,
        joins_by_itself: bool = False,
    ) -> None:
        self.scripts = scripts
        self.report = report
        self.actions = actions
        self.joins_by_itself = joins_by_itself  # no administrator has to add a voter
        self._made: set[str] = set()
        self._gone: set[str] = set()
        self._settings: dict[str, set[str | None]] = {}  # by topic: the values that may hold
        self._unanswered: dict[str, set[str]] = {}
        self._spare_votes: bool | None = joins_by_itself or None  # None: not known
        # By voter, with its disk: whether it was removed last; None: an answer is missing.
        self.removed: dict[tuple[int, bytes], bool | None] = {}

    def work(self, topics: list[str]) -> Script:
        scripts = self.scripts
        while not scripts.stopped:
            yield scripts.chance.randint(500, 5_000)
            if scripts.stopped:
                return
            action = scripts.chance.choice(self.actions)
            if action is Action.MAKE_TOPIC:
                yield from self._make_topic()
            elif action is Action.DELETE_TOPIC:
                yield from self._delete_topic()
            elif action is Action.CONFIGURE:
                yield from self._configure(scripts.chance.choice(topics))
            elif action is Action.REASSIGN:
                yield from self._reassign(scripts.chance.choice(topics))
            elif action is Action.ELECT:
                yield from self._elect()
            elif action is Action.CHANGE_VOTERS:
                yield from self._change_voters()
            elif action is Action.MOVE_REPLICA:
                yield from self._move_replica(scripts.chance.choice(topics))

    def _ask(self, messages: Any, request: Any) -> Ask:
        return Ask(self.scripts.anybody(), messages, request, None, TIMEOUT_MS)

    def _make_topic(self) -> Steps:
        name = f"topic-{self.scripts.new_number()}"
        topic = create_topics.CreatableTopic(name, 1, 3)
        request = create_topics.CreateTopicsRequest([topic], 5_000)
        answer = yield self._ask(create_topics, request)
        if answer is not None and answer.topics[0].error_code == ErrorCode.NONE:
            self._made.add(name)
            self.report.topics_made += 1

    def _delete_topic(self) -> Steps:
        if not self._made:
            return
        name = self.scripts.chance.choice(sorted(self._made))
        self._made.discard(name)
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name)])
        request.timeout_ms = 5_000
        answer = yield self._ask(delete_topics, request)
        if answer is not None and answer.responses[0].error_code == ErrorCode.NONE:
            self._gone.add(name)
            self.report.topics_deleted += 1

    def _configure(self, topic: str) -> Steps:
        value = str(SMALLEST_SETTING + self.scripts.new_number())
        config = incremental_alter_configs.AlterableConfig(SETTING, 0, value)
        resource = incremental_alter_configs.AlterConfigsResource(TOPIC_RESOURCE, topic, [config])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        self._settings.setdefault(topic, {None}).add(value)
        answer = yield self._ask(incremental_alter_configs, request)
        if answer is not None and answer.responses[0].error_code == ErrorCode.NONE:
            # An earlier one without an answer may still be on its way to the controller.
            self._settings[topic] = {value, *self._unanswered.get(topic, ())}
            self.report.configs_set += 1
        else:
            self._unanswered.setdefault(topic, set()).add(value)

    def _reassign(self, topic: str) -> Steps:
        image = self.scripts.image()
        if image is None or topic not in image.topics:
            return
        chance = self.scripts.chance
        brokers = [m.id for m in self.scripts.cluster.members.values() if m.settings.is_broker]
        index = chance.randrange(len(image.topics[topic].partitions))
        replicas = chance.sample(brokers, 3)
        part = alter_partition_reassignments.ReassignablePartition(index, replicas)
        named = alter_partition_reassignments.ReassignableTopic(topic, [part])
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(5_000)
        request.topics = [named]
        answer = yield self._ask(alter_partition_reassignments, request)
        if answer is None or answer.error_code != ErrorCode.NONE:
            return
        self.report.reassignments += answer.responses[0].partitions[0].error_code == ErrorCode.NONE

    def _move_replica(self, topic: str) -> Steps:
        image = self.scripts.image()
        if image is None or topic not in image.topics:
            return
        chance, cluster = self.scripts.chance, self.scripts.cluster
        index = chance.randrange(len(image.topics[topic].partitions))
        node = chance.choice(image.topics[topic].partitions[index].replicas)
        named = alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [index])
        folder = alter_replica_log_dirs.AlterReplicaLogDir(chance.choice(cluster.folders), [named])
        request = alter_replica_log_dirs.AlterReplicaLogDirsRequest([folder])
        to = Address(f"node{node}", CLIENT_PORT)
        answer = yield Ask(to, alter_replica_log_dirs, request, None, TIMEOUT_MS)
        if answer is not None:
            code = answer.results[0].partitions[0].error_code
            self.report.replicas_moved += code == ErrorCode.NONE

    def _elect(self) -> Steps:
        request = elect_leaders.ElectLeadersRequest(0, None, 5_000)
        answer = yield self._ask(elect_leaders, request)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self.report.elections_asked_for += 1

    # Voters

    def _change_voters(self) -> Steps:
        """The fourth node becomes a voter, and later none again."""
        spare = self.scripts.cluster.members[4]
        code = yield from (
            self.remove_voter(spare.voter) if self._spare_votes else self.add_voter(spare)
        )
        if code == ErrorCode.NONE:
            self.report.voters_changed += 1
            self._spare_votes = not self._spare_votes
        elif code in (ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND):
            self._spare_votes = code == ErrorCode.DUPLICATE_VOTER

    def add_voter(self, member: Member) -> Steps:
        new = member.voter
        points = [add_raft_voter.Listener(p.listener, p.host, p.port) for p in new.endpoints]
        request = add_raft_voter.AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5_000,
            voter_id=new.id,
            voter_directory_id=new.directory_id,
            listeners=points,
        )
        answer = yield self._ask(add_raft_voter, request)
        code = None if answer is None else answer.error_code
        self._note_change(new, code, removes=False)
        return code

    def remove_voter(self, old: Voter) -> Steps:
        request = remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=old.id, voter_directory_id=old.directory_id
        )
        answer = yield self._ask(remove_raft_voter, request)
        code = None if answer is None else answer.error_code
        self._note_change(old, code, removes=True)
        return code

    def _note_change(self, voter: Voter, code: int | None, *, removes: bool) -> None:
        """A request without an answer may be carried out at any time, so nothing is known then."""
        key = voter.id, voter.directory_id
        if code in (None, ErrorCode.REQUEST_TIMED_OUT):
            self.removed[key] = None
        elif code == ErrorCode.NONE and self.removed.get(key, False) is not None:
            self.removed[key] = removes

    def replace_voter(self, member: Member, old: Voter) -> Script:
        """Replace a voter whose disk was lost: remove the old one, then add the new one."""
        done = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)
        while (yield from self.remove_voter(old)) not in done:
            yield 500
        done = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER)
        while (yield from self.add_voter(member)) not in done:
            if member.voter.directory_id == old.directory_id:
                raise Violation("the disk that was lost is back")
            yield 500
        self.report.voters_changed += 1

    # The end

    def finish(self, node: int, image: MetadataImage) -> None:
        missing = self._made - set(image.topics)
        if missing:
            raise Violation(f"node {node} does not know the topics {missing}, which were made")
        left = self._gone & set(image.topics)
        if left:
            raise Violation(f"node {node} has the topics {left}, which were deleted")
        for topic, values in self._settings.items():
            found = image.config(TOPIC_RESOURCE, topic).get(SETTING)
            if found not in values:
                raise Violation(f"node {node} has {SETTING}={found} of {topic}, not {values}")
