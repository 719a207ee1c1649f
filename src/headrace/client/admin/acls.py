"""Access control entries of a cluster: list, add, remove.

Calls wait until the cluster has answered; a refusal is raised as `ClientError`. Sent with our own
codecs: librdkafka does not know all types of resources. Words are Kafka's, in small letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.messages import create_acls, delete_acls, describe_acls

# In one request; the brokers of a cluster take 10,000 changes at a time.
MOST_AT_ONCE = 1_000

Kind = TypeVar("Kind", bound=IntEnum)


@dataclass(slots=True, frozen=True, order=True)
class Acl:
    """One entry: a principal from a host is allowed or denied an operation on resources."""

    resource_type: str
    resource: str
    pattern: str  # literal, or prefixed: all resources whose names begin so
    principal: str
    host: str
    operation: str
    permission: str  # allow or deny


@dataclass(slots=True, frozen=True)
class AclFilter:
    """The conditions of a search; None matches everything.

    `pattern` can also be "match": every entry that a resource of this name falls under.
    """

    resource_type: str | None = None
    resource: str | None = None
    pattern: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None


EVERYTHING = AclFilter()


class Acls:
    """Adds, lists and removes access control entries: `admin.acls`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        brokers = reach(connection.admin(), connection).brokers.values()
        self._address = next((str(broker.host), broker.port) for broker in brokers)

    def find(self, wanted: AclFilter = EVERYTHING) -> list[Acl]:
        with self._wire() as wire:
            request = describe_acls.DescribeAclsRequest(*_numbers(wanted))
            answer = wire.ask(describe_acls, request)
        require_no_error(answer.error_code, answer.error_message)
        return sorted(
            _words(found.resource_type, found.resource_name, found.pattern_type, entry)
            for found in answer.resources
            for entry in found.acls
        )

    def add(self, entries: Sequence[Acl]) -> None:
        """Add entries; existing ones stay as they are. If one is refused, the others may have been
        added."""
        with self._wire() as wire:
            for first in range(0, len(entries), MOST_AT_ONCE):
                some = entries[first : first + MOST_AT_ONCE]
                request = create_acls.CreateAclsRequest([_creation(entry) for entry in some])
                for result in wire.ask(create_acls, request).results:
                    require_no_error(result.error_code, result.error_message)

    def remove(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Remove entries; returns those that were found and removed."""
        wanted = [delete_acls.DeleteAclsFilter(*_numbers(one)) for one in filters]
        with self._wire() as wire:
            answer = wire.ask(delete_acls, delete_acls.DeleteAclsRequest(wanted))
        gone: set[Acl] = set()
        for result in answer.filter_results:
            require_no_error(result.error_code, result.error_message)
            for one in result.matching_acls:
                require_no_error(one.error_code, one.error_message)
                gone.add(_words(one.resource_type, one.resource_name, one.pattern_type, one))
        return sorted(gone)

    def _wire(self) -> Wire:
        return Wire(self.connection, self._address)


def word(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower().replace("_", "-")
    except ValueError:
        return f"unknown-{number}"


def number(kind: type[Kind], text: str) -> Kind:
    try:
        return kind[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(word(kind, one) for one in kind if one.name not in ("UNKNOWN", "ANY"))
        raise ClientError(f"'{text}' is none of {known}.") from None


def _words(resource_type: int, resource: str, pattern: int, entry: Any) -> Acl:
    return Acl(
        word(ResourceType, resource_type),
        resource,
        word(PatternType, pattern),
        entry.principal,
        entry.host,
        word(Operation, entry.operation),
        word(Permission, entry.permission_type),
    )


def _creation(entry: Acl) -> create_acls.AclCreation:
    return create_acls.AclCreation(
        number(ResourceType, entry.resource_type),
        entry.resource,
        number(PatternType, entry.pattern),
        entry.principal,
        entry.host,
        number(Operation, entry.operation),
        number(Permission, entry.permission),
    )


def _numbers(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """The fields in the order in which both requests have them."""
    return (
        number(ResourceType, wanted.resource_type or "any"),
        wanted.resource,
        number(PatternType, wanted.pattern or "any"),
        wanted.principal,
        wanted.host,
        number(Operation, wanted.operation or "any"),
        number(Permission, wanted.permission or "any"),
    )
