"""A topic of a simulated cluster whose records are deleted while its replicas come and go.

DeleteRecords moves the start of a log, often into the middle of a batch, and a replica that is
added then, or comes back, has to begin there. The partition has two or three replicas, never one:
with `min.insync.replicas` 2 the promise about one lost node holds for both.
"""

from __future__ import annotations

from headrace.node.simulator.cluster.record_checker import RecordChecker
from headrace.node.simulator.cluster.report import ClusterReport
from headrace.node.simulator.cluster.scripts import REST_MS, Ask, Place, Script, Scripts
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import alter_partition_reassignments, delete_records

TIMEOUT_MS = 8_000
REST_BETWEEN_DELETIONS_MS = 2_000  # the longest
REST_BETWEEN_MOVES_MS = 6_000


class TrimmedTopic:
    """One partition and the two clients that change it."""

    def __init__(
        self, scripts: Scripts, checker: RecordChecker, report: ClusterReport, place: Place
    ) -> None:
        self.scripts = scripts
        self.checker = checker
        self.report = report
        self.place = place

    def delete_records(self) -> Script:
        """Delete up to any offset that was acknowledged, again and again."""
        scripts, (topic, index) = self.scripts, self.place
        while not scripts.stopped:
            yield scripts.chance.randint(1, REST_BETWEEN_DELETIONS_MS)
            leader = scripts.leader(self.place)
            start = self.checker.deleted_before(self.place)
            end = max(self.checker.acknowledged.get(self.place, (0,)))
            if leader is None or end <= start:
                yield REST_MS
                continue
            offset = scripts.chance.randint(start + 1, end)
            self.checker.delete_before(self.place, offset)
            part = delete_records.DeleteRecordsPartition(index, offset)
            request = delete_records.DeleteRecordsRequest(
                [delete_records.DeleteRecordsTopic(topic, [part])], 5_000
            )
            answer = yield Ask(leader.address, delete_records, request, None, TIMEOUT_MS)
            if answer is not None:
                code = answer.topics[0].partitions[0].error_code
                self.report.deletions += code == ErrorCode.NONE

    def move_replicas(self) -> Script:
        """A replica leaves, and later one is added, which begins with an empty log."""
        scripts, (topic, index) = self.scripts, self.place
        while not scripts.stopped:
            yield scripts.chance.randint(1, REST_BETWEEN_MOVES_MS)
            members = scripts.cluster.members.values()
            brokers = [member.id for member in members if member.settings.is_broker]
            replicas = scripts.chance.sample(brokers, scripts.chance.choice((2, 3)))
            part = alter_partition_reassignments.ReassignablePartition(index, replicas)
            named = alter_partition_reassignments.ReassignableTopic(topic, [part])
            request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(5_000)
            request.topics = [named]
            to = scripts.anybody()
            answer = yield Ask(to, alter_partition_reassignments, request, None, TIMEOUT_MS)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                code = answer.responses[0].partitions[0].error_code
                self.report.reassignments += code == ErrorCode.NONE
