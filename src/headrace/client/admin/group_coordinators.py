"""Connections to the coordinators of groups, for requests that librdkafka does not have."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire, require_no_error, wire_to_any
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator, list_groups

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition

GROUP_KEY = 0  # FindCoordinator's type
FIRST_WITH_TYPES = 5  # ListGroups
PAUSE_S = 0.05
NOT_SAID = -1


class GroupCoordinators:
    """`brokers` are the addresses of the cluster's brokers."""

    def __init__(self, connection: ClientSettings, brokers: Sequence[Address]) -> None:
        self._connection = connection
        self._brokers = brokers

    def states(self, kind: str, api: ModuleType) -> dict[str, str]:
        """The state of each group of this kind, by name; without those of brokers that do not
        answer. `api` is one that only clusters with such groups have."""
        found: dict[str, str] = {}
        for address in self._brokers:
            try:
                with Wire(self._connection, address) as wire:
                    if not _knows(wire, api):
                        return found
                    request = list_groups.ListGroupsRequest(types_filter=[kind])
                    answer = wire.ask(list_groups, request)
                require_no_error(answer.error_code)
            except ClientError:  # the list of all groups reports the broker's refusal
                continue
            # A broker may ignore the filter.
            found.update({g.group_id: g.group_state for g in answer.groups if g.group_type == kind})
        return found

    @contextmanager
    def of_group(self, name: str, api: ModuleType) -> Iterator[tuple[Wire | None, int]]:
        """A connection to the group's coordinator, and its node id; None if the cluster does not
        have this API."""
        address, node = self._find(name, api)
        if address is None:
            yield None, node
            return
        with Wire(self._connection, address) as wire:
            yield wire, node

    def _find(self, name: str, api: ModuleType) -> tuple[Address | None, int]:
        """The coordinator; waits for one that was just made or has just moved."""
        deadline = time.monotonic() + self._connection.timeout_s
        with wire_to_any(self._connection, self._brokers) as wire:
            if not _knows(wire, api):
                return None, NOT_SAID
            while True:
                request = find_coordinator.FindCoordinatorRequest(name, GROUP_KEY, [name])
                [found] = wire.ask(find_coordinator, request).coordinators
                if found.error_code == ErrorCode.NONE:
                    return (found.host, found.port), found.node_id
                if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE or (
                    time.monotonic() > deadline
                ):
                    require_no_error(found.error_code, found.error_message)
                time.sleep(PAUSE_S)


def _knows(wire: Wire, api: ModuleType) -> bool:
    try:
        wire.version_of(api)
        return wire.version_of(list_groups) >= FIRST_WITH_TYPES
    except ClientError:
        return False
