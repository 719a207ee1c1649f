"""ElectLeaders 0-2, AlterPartitionReassignments 0-1, ListPartitionReassignments 0 and
AlterReplicaLogDirs 1-2, asked of a cluster of one."""

from __future__ import annotations

from headrace.wire.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.conformance.stage import Stage
from tests.conformance.stories.log_dirs import without_disk

PREFERRED, UNCLEAN = 0, 1


def elections(stage: Stage) -> None:
    stage.topic("elected", partitions=3)
    for version in elect_leaders.VERSIONS:

        def ask(
            line: str,
            *topics: tuple[str, list[int]],
            kind: int = PREFERRED,
            timeout_ms: int = 30_000,
            version: int = version,
        ) -> None:
            named = [TopicPartitions(*one) for one in topics]
            request = ElectLeadersRequest(kind, named, timeout_ms)
            stage.ask(f"v{version} {line}", elect_leaders, version, request)

        ask("all of a topic", ("elected", [0, 1, 2]))
        ask("an unknown partition", ("elected", [0, 9, -1]))
        ask("an unknown topic", ("never-was", [0]))
        ask("a bad name", ("bad name", [0]))
        ask("twice the same", ("elected", [1, 1]))
        ask("the same topic twice", ("elected", [1]), ("elected", [2]))
        ask("no partition", ("elected", []))
        ask("nothing")
        ask("no time", ("elected", [0]), timeout_ms=0)
        ask("less than no time", ("elected", [0]), timeout_ms=-1)
        everything = ElectLeadersRequest(PREFERRED, None, 30_000)
        found = stage.ask(f"v{version} everything", elect_leaders, version, everything)
        # Every topic of the cluster is named, with the partitions that were worth an election.
        stage.answers[f"v{version} everything"]["replica_election_results"] = sum(
            len(topic.partition_result) for topic in found.replica_election_results
        )
        if version:
            ask("unclean", ("elected", [0, 9]), kind=UNCLEAN)
            for kind in (2, -1, 127):
                ask(f"a kind that is none: {kind}", ("elected", [0]), kind=kind)


def reassigned(stage: Stage) -> None:
    stage.topic("reassigned", partitions=3)
    for version in alter_partition_reassignments.VERSIONS:

        def ask(
            line: str,
            *topics: tuple[str, dict[int, list[int] | None]],
            timeout_ms: int = 30_000,
            any_number: bool = True,
            version: int = version,
        ) -> None:
            named = [
                ReassignableTopic(
                    name, [ReassignablePartition(index, to) for index, to in targets.items()]
                )
                for name, targets in topics
            ]
            request = AlterPartitionReassignmentsRequest(timeout_ms, any_number, named)
            stage.ask(f"v{version} {line}", alter_partition_reassignments, version, request)

        ask("to where it is", ("reassigned", {0: [1], 2: [1]}))
        ask("to a broker that is not there", ("reassigned", {0: [77]}))
        ask("to one that is there and one that is not", ("reassigned", {0: [1, 77]}))
        ask("to a negative broker", ("reassigned", {0: [-1]}))
        ask("to the same twice", ("reassigned", {0: [1, 1]}))
        ask("to nobody", ("reassigned", {0: []}))
        ask("cancelled, and there was none", ("reassigned", {0: None}))
        ask("good and bad", ("reassigned", {0: [1], 1: [77], 2: None}))
        ask("an unknown partition", ("reassigned", {9: [1], -1: [1]}))
        ask("an unknown topic", ("never-was", {0: [1]}))
        ask("an unknown topic, cancelled", ("never-was", {0: None}))
        ask("a bad name", ("bad name", {0: [1]}))
        ask("two topics", ("reassigned", {0: [1]}), ("never-was", {0: [1]}))
        ask("no partition", ("reassigned", {}))
        ask("nothing")
        ask("no time", ("reassigned", {0: [1]}), timeout_ms=0)
        if version:
            ask("as many as before", ("reassigned", {0: [1]}), any_number=False)
            ask("more than before", ("reassigned", {0: [1, 1]}), any_number=False)
            ask("fewer than before", ("reassigned", {0: []}), any_number=False)
            ask("cancelled, as many", ("reassigned", {0: None}), any_number=False)
            ask("nothing, as many", any_number=False)


def listed(stage: Stage) -> None:
    stage.topic("listed-moves", partitions=2)

    def ask(line: str, *topics: tuple[str, list[int]], timeout_ms: int = 30_000) -> None:
        named = [ListPartitionReassignmentsTopics(*one) for one in topics]
        request = ListPartitionReassignmentsRequest(timeout_ms, named)
        stage.ask(line, list_partition_reassignments, 0, request)

    ask("a topic", ("listed-moves", [0, 1]))
    ask("an unknown partition", ("listed-moves", [9, -1]))
    ask("an unknown topic", ("never-was", [0]))
    ask("no partition", ("listed-moves", []))
    ask("nothing")
    ask("no time", ("listed-moves", [0]), timeout_ms=0)
    everything = ListPartitionReassignmentsRequest(30_000, None)
    stage.ask("everything", list_partition_reassignments, 0, everything)


def other_folders(stage: Stage) -> None:
    stage.topic("moved", partitions=3)
    here = str(stage.node.data)
    for version in alter_replica_log_dirs.VERSIONS:

        def ask(
            line: str, *folders: tuple[str, dict[str, list[int]]], version: int = version
        ) -> None:
            named = [
                AlterReplicaLogDir(
                    path, [AlterReplicaLogDirTopic(name, indexes) for name, indexes in of.items()]
                )
                for path, of in folders
            ]
            request = AlterReplicaLogDirsRequest(named)
            stage.ask(f"v{version} {line}", alter_replica_log_dirs, version, request)

        ask("to where it is", (here, {"moved": [0, 1]}))
        ask("to nowhere", ("/nowhere/at/all", {"moved": [0, 1]}))
        ask("to a folder inside", (f"{here}/inside", {"moved": [0]}))
        ask("to where it is, in other words", (f"{here}/", {"moved": [0]}))
        ask("no path", ("", {"moved": [0]}))
        ask("a relative path", ("data", {"moved": [0]}))
        ask("an unknown partition", (here, {"moved": [9, -1]}))
        ask("an unknown topic", (here, {"never-was": [0]}))
        ask("a bad name", (here, {"bad name": [0]}))
        ask("two folders", (here, {"moved": [0]}), ("/nowhere", {"moved": [1]}))
        ask("one partition, two folders", (here, {"moved": [0]}), ("/nowhere", {"moved": [0]}))
        ask("no partition", (here, {"moved": []}))
        ask("no topic", (here, {}))
        ask("nothing")
    asked = DescribeLogDirsRequest([DescribableLogDirTopic("moved", [0, 1, 2])])
    stage.ask("nothing is on its way", describe_log_dirs, 5, asked)
    without_disk(stage, "nothing is on its way")


STORIES = (elections, reassigned, listed, other_folders)
