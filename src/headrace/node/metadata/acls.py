"""Access control entries of an image: which of them a client's filter means.

In a filter, a null name and `ANY` in the other fields match every value. The pattern type MATCH
finds every pattern that covers a resource of the given name, ANY only patterns with that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.wire.protocol.acls import WILDCARD, Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.messages.access_control_entry_record import AccessControlEntryRecord

Content = tuple[int, str, int, str, str, int, int]  # all of an entry but its id


class Filter(NamedTuple):
    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: Any) -> Filter:
        """Returns the filter of a DescribeAcls request, or one of the filters of DeleteAcls."""
        return cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )

    def finds(self, entry: AccessControlEntryRecord) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission_type in (Permission.ANY, entry.permission_type)
            and (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self._finds_pattern(entry.pattern_type, entry.resource_name)
        )

    def _finds_pattern(self, pattern_type: int, name: str) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        wanted = self.resource_name
        if wanted is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return wanted == name
        if pattern_type == PatternType.LITERAL:
            return name in (wanted, WILDCARD)
        return wanted.startswith(name)

    @property
    def makes_sense(self) -> bool:
        """Returns whether Kafka knows each of the filter's numbers."""
        return all(
            number in known
            for number, known in (
                (self.resource_type, _KNOWN_TYPES),
                (self.pattern_type, _KNOWN_PATTERNS),
                (self.operation, _KNOWN_OPERATIONS),
                (self.permission_type, _KNOWN_PERMISSIONS),
            )
        )

    @property
    def has_unknown(self) -> bool:
        """Returns whether a field has the value UNKNOWN, which no client may send."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission_type)


_KNOWN_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_KNOWN_PATTERNS = frozenset(PatternType) - {PatternType.UNKNOWN}
_KNOWN_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN}
_KNOWN_PERMISSIONS = frozenset(Permission) - {Permission.UNKNOWN}


def content_of(entry: AccessControlEntryRecord) -> Content:
    return (
        entry.resource_type,
        entry.resource_name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def found_by(
    wanted: Filter, entries: Iterable[AccessControlEntryRecord]
) -> list[AccessControlEntryRecord]:
    return [entry for entry in entries if wanted.finds(entry)]
