"""An orderly end: a static member says itself that it leaves, if others are there to take over.

librdkafka never says it for a static member (KIP-345), so its partitions would wait for the end of
its session. An instance that is alone keeps its place: after a restart it goes on at once.
"""

from __future__ import annotations

import logging

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.groups import Groups, NoSuchGroup
from headrace.client.wire import Wire, require_no_error
from headrace.protocol.messages import find_coordinator, leave_group

log = logging.getLogger("headrace.delay")

GROUP_KEY = 0  # FindCoordinator's type
FIRST_FIND_WITH_MANY = 4


def leave(connection: Connection, group: str, instance: str) -> None:
    """Best effort: what is not said here is noticed when the session ends."""
    try:
        _leave(connection, group, instance)
    except ClientError as failure:
        log.info("the group is not told that %s leaves: %s", instance, failure)


def _leave(connection: Connection, group: str, instance: str) -> None:
    groups = Groups(connection)
    try:
        [found] = groups.describe([group])
    except NoSuchGroup:
        return
    if all(member.instance_id == instance for member in found.members):
        return
    request = find_coordinator.FindCoordinatorRequest(group, GROUP_KEY, [group])
    broker = next(iter(groups.cluster.brokers.values()))
    with Wire(connection, (str(broker.host), broker.port)) as wire:
        many = wire.version_of(find_coordinator) >= FIRST_FIND_WITH_MANY
        answer = wire.ask(find_coordinator, request)
    coordinator = answer.coordinators[0] if many else answer
    require_no_error(coordinator.error_code)
    with Wire(connection, (coordinator.host, coordinator.port)) as wire:
        member = leave_group.MemberIdentity("", instance, "it was stopped")
        answer = wire.ask(leave_group, leave_group.LeaveGroupRequest(group, "", [member]))
    require_no_error(answer.error_code)
