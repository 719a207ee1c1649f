"""An orderly end: a static member says itself that it leaves, if others are there to take over.

librdkafka never says it for a static member (KIP-345), so its partitions would wait for the end of
its session. An instance that is alone stays in the group: after a restart it continues at once,
unless it listens elsewhere now: the group keeps the client id with which a static member first
joined.
"""

from __future__ import annotations

import logging

from headrace.client.admin.groups import Groups, Member, NoSuchGroup
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import find_coordinator, leave_group

log = logging.getLogger("headrace.delay")

GROUP_KEY = 0  # FindCoordinator's type
FIRST_FIND_WITH_MANY = 4


def leave(connection: ClientSettings, group: str, instance: str) -> None:
    """Leaves the group, best effort: without this request the group notices when the
    session ends."""
    try:
        groups = Groups(connection)
        members = _members(groups, group)
        if any(member.instance_id != instance for member in members):
            _tell(groups, group, instance, "it was stopped")
    except ClientError as failure:
        log.info("the group did not get the leave request of %s: %s", instance, failure)


def leave_former_address(
    connection: ClientSettings, group: str, instance: str, former: str
) -> bool:
    """Whether the group no longer knows this instance by `former`, the client id of its last run.

    The caller holds the instance's store, so that run has ended.
    """
    try:
        groups = Groups(connection)
        known = {member.instance_id: member.client_id for member in _members(groups, group)}
        if known.get(instance) == former:
            log.info("%s listens at another port than before: it joins the group again", instance)
            _tell(groups, group, instance, "it listens at another port now")
    except ClientError as failure:
        log.warning("the group still shows the former address of %s: %s", instance, failure)
        return False
    return True


def _members(groups: Groups, group: str) -> list[Member]:
    try:
        [found] = groups.describe([group])
    except NoSuchGroup:
        return []
    return list(found.members)


def _tell(groups: Groups, group: str, instance: str, why: str) -> None:
    connection = groups.connection
    request = find_coordinator.FindCoordinatorRequest(group, GROUP_KEY, [group])
    broker = next(iter(groups.cluster.brokers.values()))
    with Wire(connection, (str(broker.host), broker.port)) as wire:
        many = wire.version_of(find_coordinator) >= FIRST_FIND_WITH_MANY
        answer = wire.ask(find_coordinator, request)
    coordinator = answer.coordinators[0] if many else answer
    require_no_error(coordinator.error_code)
    with Wire(connection, (coordinator.host, coordinator.port)) as wire:
        member = leave_group.MemberIdentity("", instance, why)
        answer = wire.ask(leave_group, leave_group.LeaveGroupRequest(group, "", [member]))
    require_no_error(answer.error_code)
