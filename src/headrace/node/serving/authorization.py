"""Access control by Kafka's access control entries, for one principal and one resource.

The rules are those of Apache Kafka's StandardAuthorizer. A pattern names resources by their name,
by a prefix of it, or all of a type (`*`). Among the entries whose pattern matches, those apply that
name the principal or `User:*`, and its host or `*`. One that denies outweighs all that allow. READ,
WRITE, DELETE and ALTER include DESCRIBE, and ALTER_CONFIGS includes DESCRIBE_CONFIGS, but only when
allowed: a client that is denied READ may still describe. Super users may do everything. A resource
that no pattern matches is closed, unless `allow.everyone.if.no.acl.found` opens it.

A decision is a number with a bit for each operation, so one look-up answers for all of them. It
costs a few look-ups in dictionaries, whatever the number of entries: one for the name, one for `*`,
one for each *length* of a prefix in use. Decisions are cached until an entry changes.

Pure: it takes no image and no request. Handlers decide which operation they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv6Address
from typing import Any, Protocol

from headrace.node.serving.principal import Principal
from headrace.wire.protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

EVERYTHING = (1 << len(Operation)) - 1
NOTHING = 0
# Bounds the cached decisions, in number and in bytes: names of groups may be long.
MOST_DECISIONS = 20_000
LONGEST_NAME_REMEMBERED = 300

_IMPLY_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})

Who = tuple[str, str]  # principal and host, each of them or a wildcard


class Asking(Protocol):
    """The part of a connection that an authorizer needs."""

    principal: Principal
    client_host: str


class Entry(Protocol):
    """One access control entry; an AccessControlEntryRecord is one."""

    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


# The last element is the name of a resource, or the operation that is needed on any of a type.
DecisionKey = tuple[Principal, str, int, str | int]
Denied = Callable[[Any, Operation, ResourceType, str], None]


class Rules:
    """The entries of one pattern, and the resulting bits for each principal and host."""

    __slots__ = ("_entries", "bits")

    def __init__(self) -> None:
        self._entries: dict[Who, dict[bytes, Entry]] = {}
        self.bits: dict[Who, tuple[int, int]] = {}  # allowed, denied

    def add(self, who: Who, entry: Entry) -> None:
        self._entries.setdefault(who, {})[entry.id] = entry
        self._sum_up(who)

    def remove(self, who: Who, entry: Entry) -> None:
        entries = self._entries[who]
        del entries[entry.id]
        if entries:
            self._sum_up(who)
        else:
            del self._entries[who], self.bits[who]

    def _sum_up(self, who: Who) -> None:
        allowed = denied = 0
        for entry in self._entries[who].values():
            if entry.permission_type == Permission.ALLOW:
                allowed |= allowed_by(entry.operation)
            else:
                denied |= denied_by(entry.operation)
        self.bits[who] = allowed, denied


class Authorizer:
    """`follow` takes the present entries; `allows` and the methods after it answer from them."""

    __slots__ = (
        "super_users",
        "open_if_no_entry",
        "changes",
        "on_denied",
        "_followed",
        "_by_name",
        "_by_prefix",
        "_prefix_lengths",
        "_of_whom",
        "_decisions",
    )

    def __init__(self, super_users: Iterable[str] = (), *, open_if_no_entry: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.open_if_no_entry = open_if_no_entry
        self.changes = 0  # grows when an entry changes: older decisions may be wrong then
        self.on_denied: Denied | None = None  # called for refusals, not for what lists leave out
        self._followed: Mapping[bytes, Entry] = {}
        self._by_name: dict[tuple[int, str], Rules] = {}
        self._by_prefix: dict[tuple[int, str], Rules] = {}
        # By resource type: the number of prefixes of each length.
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        self._of_whom: dict[tuple[int, Who], dict[bytes, Entry]] = {}
        self._decisions: dict[DecisionKey, int] = {}

    def __len__(self) -> int:
        return len(self._followed)

    # --- answers

    def allows(
        self,
        asking: Asking,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        quietly: bool = False,
    ) -> bool:
        """`quietly`: a refusal only leaves something out of an answer, and is not reported."""
        if self.rights(asking, resource_type, name) >> operation & 1:
            return True
        if not quietly and self.on_denied is not None:
            self.on_denied(asking, operation, resource_type, name)
        return False

    def rights(self, asking: Asking, resource_type: int, name: str) -> int:
        """Returns the operations that are allowed on one resource, as bits."""
        key = (asking.principal, asking.client_host, resource_type, name)
        found = self._decisions.get(key)
        if found is None:
            found = self._decide(asking, resource_type, name)
            if len(name) <= LONGEST_NAME_REMEMBERED:
                self._remember(key, found)
        return found

    def allows_somewhere(
        self, asking: Asking, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Returns whether there may be a resource of this type that the operation is allowed on.

        Like Apache Kafka's `authorizeByResourceType`: operations count as they are written, none
        implies another. For idempotent producers, which may write to some topic.
        """
        key = (asking.principal, asking.client_host, resource_type, int(operation))
        found = self._decisions.get(key)
        if found is None:
            found = int(self._decide_somewhere(asking, operation, resource_type))
            self._remember(key, found)
        return bool(found)

    # --- entries

    def follow(self, entries: Mapping[bytes, Entry]) -> None:
        """Replace the entries. Costs a pass over them if anything has changed."""
        before = self._followed
        if entries is before:
            return
        for entry_id, entry in before.items():
            if entries.get(entry_id) is not entry:
                self._remove(entry)
        for entry_id, entry in entries.items():
            if before.get(entry_id) is not entry:
                self._add(entry)
        self._followed = entries
        self._decisions.clear()
        self.changes += 1

    def _add(self, entry: Entry) -> None:
        resource_type, name, who = entry.resource_type, entry.resource_name, _who(entry)
        if entry.pattern_type == PatternType.LITERAL:
            rules = self._by_name.setdefault((resource_type, name), Rules())
        else:
            if (resource_type, name) not in self._by_prefix:
                lengths = self._prefix_lengths.setdefault(resource_type, {})
                lengths[len(name)] = lengths.get(len(name), 0) + 1
            rules = self._by_prefix.setdefault((resource_type, name), Rules())
        rules.add(who, entry)
        self._of_whom.setdefault((resource_type, who), {})[entry.id] = entry

    def _remove(self, entry: Entry) -> None:
        resource_type, name, who = entry.resource_type, entry.resource_name, _who(entry)
        literal = entry.pattern_type == PatternType.LITERAL
        table = self._by_name if literal else self._by_prefix
        rules = table[resource_type, name]
        rules.remove(who, entry)
        if not rules.bits:
            del table[resource_type, name]
            if not literal:
                lengths = self._prefix_lengths[resource_type]
                lengths[len(name)] -= 1
                if not lengths[len(name)]:
                    del lengths[len(name)]
        same = self._of_whom[resource_type, who]
        del same[entry.id]
        if not same:
            del self._of_whom[resource_type, who]

    # --- decisions

    def _remember(self, key: DecisionKey, found: int) -> None:
        if len(self._decisions) >= MOST_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = found

    def _decide(self, asking: Asking, resource_type: int, name: str) -> int:
        principal = str(asking.principal)
        if principal in self.super_users:
            return EVERYTHING
        everybody = _everybody_like(principal, asking.client_host)
        allowed = denied = 0
        any_entry = False
        for rules in self._matching(resource_type, name):
            any_entry = True
            for who in everybody:
                bits = rules.bits.get(who)
                if bits is not None:
                    allowed |= bits[0]
                    denied |= bits[1]
        if not any_entry:
            return EVERYTHING if self.open_if_no_entry else NOTHING
        return allowed & ~denied

    def _matching(self, resource_type: int, name: str) -> Iterator[Rules]:
        rules = self._by_name.get((resource_type, name))
        if rules is not None:
            yield rules
        rules = self._by_name.get((resource_type, WILDCARD))
        if rules is not None and name != WILDCARD:
            yield rules
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                rules = self._by_prefix.get((resource_type, name[:length]))
                if rules is not None:
                    yield rules

    def _decide_somewhere(
        self, asking: Asking, operation: Operation, resource_type: ResourceType
    ) -> bool:
        # An invented name stands for super users, `*`, and resources that are open without entries.
        if self.rights(asking, resource_type, "hardcode") >> operation & 1:
            return True
        names: dict[tuple[bool, bool], set[str]] = {
            (allow, literal): set() for allow in (True, False) for literal in (True, False)
        }
        for who in _everybody_like(str(asking.principal), asking.client_host):
            for entry in self._of_whom.get((resource_type, who), {}).values():
                if entry.operation in (operation, Operation.ALL):
                    allow = entry.permission_type == Permission.ALLOW
                    literal = entry.pattern_type == PatternType.LITERAL
                    names[allow, literal].add(entry.resource_name)
        if WILDCARD in names[False, True]:
            return False
        if WILDCARD in names[True, True]:
            return True
        closed = names[False, False]
        lengths = {len(prefix) for prefix in closed}
        candidates = (names[True, True] - names[False, True]) | names[True, False]
        return any(
            not any(name[:length] in closed for length in lengths if length <= len(name))
            for name in candidates
        )


def allowed_by(operation: int) -> int:
    """Returns the operations that an entry for this operation includes."""
    if operation == Operation.ALL:
        return EVERYTHING
    bits = _bit(operation)
    if operation in _IMPLY_DESCRIBE:
        bits |= 1 << Operation.DESCRIBE
    elif operation == Operation.ALTER_CONFIGS:
        bits |= 1 << Operation.DESCRIBE_CONFIGS
    return bits


def denied_by(operation: int) -> int:
    return EVERYTHING if operation == Operation.ALL else _bit(operation)


def _bit(operation: int) -> int:
    """Returns 0 for an operation of a later release."""
    return 1 << operation if Operation.ALL < operation < len(Operation) else 0


def _who(entry: Entry) -> Who:
    return entry.principal, one_form_of(entry.host)


def _everybody_like(principal: str, host: str) -> tuple[Who, ...]:
    host = one_form_of(host)
    return (
        (principal, host),
        (principal, WILDCARD),
        (WILDCARD_PRINCIPAL, host),
        (WILDCARD_PRINCIPAL, WILDCARD),
    )


def one_form_of(host: str) -> str:
    """IPv6 addresses can be written in many ways; entries and sockets may use different ones."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    inner = address.ipv4_mapped
    return str(address if inner is None else inner)
