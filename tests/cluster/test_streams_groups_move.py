"""Streams groups on three brokers: internal topics through a controller elsewhere, and a
coordinator that is killed while its members live."""

from __future__ import annotations

import time
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.testing import Cluster
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator
from headrace.wire.protocol.messages import streams_group_heartbeat as messages
from tests.cluster.test_a_leader_dies import create

LONGEST_S = 120
LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Member:
    """The only member of its application; it asks again while the coordinator moves."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.epoch = 0
        self.tasks: list[Any] = []

    def coordinator(self, live: int) -> Any:
        """Its place, as the broker `live` knows it."""
        request = find_coordinator.FindCoordinatorRequest(self.group, 0, [self.group])
        with self.wire(self.cluster.address(live)) as wire:
            return wire.ask(find_coordinator, request, version=6).coordinators[0]

    def wire(self, address: str) -> Wire:
        host, _, port = address.rpartition(":")
        return Wire(ClientSettings({"bootstrap.servers": address}), (host, int(port)))

    def beat(self, live: int) -> Any:
        joins = self.epoch == 0
        request = messages.StreamsGroupHeartbeatRequest(
            self.group,
            "anna",
            self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=topology(self.group) if joins else None,
            process_id="p" if joins else None,
            active_tasks=self.tasks,
            standby_tasks=[],
            warmup_tasks=[],
        )
        deadline = time.monotonic() + LONGEST_S
        while True:
            try:
                found = self.coordinator(live)
                if found.error_code == 0:
                    with self.wire(f"{found.host}:{found.port}") as wire:
                        answer = wire.ask(messages, request, version=0)
                    if answer.error_code not in LATER:
                        assert answer.error_code == 0, answer
                        self.epoch = answer.member_epoch
                        if answer.active_tasks is not None:
                            self.tasks = [
                                messages.TaskIds(one.subtopology_id, one.partitions)
                                for one in answer.active_tasks
                            ]
                        return answer
            except ClientError:
                pass  # it has been killed a moment ago
            assert time.monotonic() < deadline, "no coordinator answers"
            time.sleep(0.1)

    def beat_until_it_has_tasks(self, live: int) -> None:
        """A broker may hear of the source topic a moment later than the others."""
        deadline = time.monotonic() + LONGEST_S
        while not self.tasks:
            answer = self.beat(live)
            assert time.monotonic() < deadline, repr(answer.status)


def topology(group: str) -> messages.Topology:
    changelog = messages.TopicInfo(f"{group}-counts-changelog")
    return messages.Topology(
        0, [messages.Subtopology("0", ["lines"], state_changelog_topics=[changelog])]
    )


def test_members_go_on_when_their_coordinator_is_killed() -> None:
    settings = {
        "group.streams.initial.rebalance.delay.ms": 0,
        "group.streams.assignment.interval.ms": 0,
    }
    with Cluster(brokers=3, processes=False, settings=settings) as cluster:
        create(cluster, "lines")
        # At most one of two coordinators is the active controller.
        members: dict[int, Member] = {}
        for number in range(50):
            member = Member(cluster, f"app-{number}")
            member.beat(1)
            members.setdefault(member.coordinator(1).node_id, member)
            if len(members) == 2:
                break
        assert len(members) == 2
        for member in members.values():
            member.beat_until_it_has_tasks(1)
            assert [one.subtopology_id for one in member.tasks] == ["0"]
        killed, member = members.popitem()
        live = 1 + killed % 3
        epoch, tasks = member.epoch, member.tasks
        cluster.kill(killed)
        answer = member.beat(live)
        assert (answer.member_epoch, member.tasks) == (epoch, tasks), "nothing was assigned again"
        assert not answer.status
        assert member.coordinator(live).node_id != killed
        cluster.restore(killed)
