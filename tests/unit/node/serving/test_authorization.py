"""Who may do what: Kafka's rules one by one, then the index against a list that is walked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from headrace.node.serving import authorization
from headrace.node.serving.authorization import EVERYTHING, Authorizer, one_form_of
from headrace.node.serving.principal import Principal
from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from tests.effort import examples

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


@dataclass
class Client:
    principal: Principal
    client_host: str = "10.0.0.1"


ALICE = Client(Principal("User", "alice"))
BOB = Client(Principal("User", "bob"))


def entry(
    operation: Operation,
    name: str = "orders",
    *,
    who: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    permission: Permission = ALLOW,
    kind: ResourceType = TOPIC,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(b"", kind, name, pattern, who, host, operation, permission)


def holding(*entries: AccessControlEntryRecord, **options: Any) -> Authorizer:
    found = Authorizer(**options)
    found.follow(numbered(entries))
    return found


def numbered(
    entries: Iterable[AccessControlEntryRecord],
) -> dict[bytes, AccessControlEntryRecord]:
    for number, one in enumerate(entries):
        one.id = number.to_bytes(16, "big")
    return {one.id: one for one in entries}


def may(
    authorizer: Authorizer,
    operation: Operation,
    name: str = "orders",
    client: Client = ALICE,
    kind: ResourceType = TOPIC,
) -> bool:
    return authorizer.allows(client, operation, kind, name)


# --- the rules


def test_a_resource_without_entries_is_closed_unless_it_is_said_to_be_open() -> None:
    assert not may(Authorizer(), Operation.READ)
    opened = holding(entry(Operation.READ, "invoices"), open_if_no_entry=True)
    assert may(opened, Operation.DELETE)
    assert not may(opened, Operation.DELETE, "invoices"), "it has an entry, though for another"
    assert not may(opened, Operation.READ, "invoices", BOB)


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    authorizer = Authorizer(["User:alice"])
    authorizer.follow(numbered([entry(Operation.ALL, "*", permission=DENY)]))
    assert may(authorizer, Operation.DELETE)
    assert not may(authorizer, Operation.DELETE, client=BOB)


def test_patterns_name_a_resource_its_beginning_or_all() -> None:
    authorizer = holding(
        entry(Operation.READ, "orders"),
        entry(Operation.WRITE, "ord", pattern=PREFIXED),
        entry(Operation.DELETE, "*"),
    )
    allowed = {
        name: [op.name for op in (Operation.READ, Operation.WRITE, Operation.DELETE)
               if may(authorizer, op, name)]
        for name in ("orders", "ordinary", "other", "or")
    }  # fmt: skip
    assert allowed == {
        "orders": ["READ", "WRITE", "DELETE"],
        "ordinary": ["WRITE", "DELETE"],
        "other": ["DELETE"],
        "or": ["DELETE"],
    }


def test_a_star_with_a_prefix_pattern_is_only_a_star() -> None:
    authorizer = holding(entry(Operation.READ, "*", pattern=PREFIXED))
    assert may(authorizer, Operation.READ, "*topic")
    assert not may(authorizer, Operation.READ, "topic")


def test_types_of_resources_do_not_mix() -> None:
    authorizer = holding(entry(Operation.READ, "*", kind=GROUP))
    assert may(authorizer, Operation.READ, kind=GROUP)
    assert not may(authorizer, Operation.READ)


def test_a_refusal_outweighs_everything_that_allows() -> None:
    authorizer = holding(
        entry(Operation.ALL, "orders"),
        entry(Operation.ALL, "*"),
        entry(Operation.WRITE, "o", pattern=PREFIXED, permission=DENY, who="User:*"),
    )
    assert may(authorizer, Operation.READ)
    assert not may(authorizer, Operation.WRITE)
    assert may(authorizer, Operation.WRITE, "payments")


def test_some_operations_include_to_describe_but_only_where_they_are_allowed() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert may(holding(entry(operation)), Operation.DESCRIBE), operation
    for operation in (Operation.CREATE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS):
        assert not may(holding(entry(operation)), Operation.DESCRIBE), operation
    assert may(holding(entry(Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    denied = holding(entry(Operation.ALL), entry(Operation.READ, permission=DENY))
    assert may(denied, Operation.DESCRIBE)
    assert not may(denied, Operation.READ)


def test_principals_and_hosts() -> None:
    authorizer = holding(
        entry(Operation.READ, who="User:*", host="10.0.0.1"),
        entry(Operation.WRITE, who="User:bob"),
        entry(Operation.DELETE, host="10.0.0.2"),
    )
    assert may(authorizer, Operation.READ, client=BOB)
    assert not may(authorizer, Operation.READ, client=Client(BOB.principal, "10.0.0.9"))
    assert may(authorizer, Operation.WRITE, client=BOB)
    assert not may(authorizer, Operation.WRITE)
    assert not may(authorizer, Operation.DELETE)
    group = Client(Principal("Group", "bob"))
    assert not may(authorizer, Operation.WRITE, client=group), "another type, the same name"


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000:0000::0001"])
def test_an_address_of_ipv6_is_the_same_however_it_is_written(written: str) -> None:
    authorizer = holding(entry(Operation.READ, host=written))
    assert may(authorizer, Operation.READ, client=Client(ALICE.principal, "::1"))
    assert not may(authorizer, Operation.READ, client=Client(ALICE.principal, "::2"))


def test_hosts_that_are_no_addresses_stay_as_they_are() -> None:
    assert one_form_of("::ffff:127.0.0.1") == "127.0.0.1"
    assert one_form_of("no:address") == "no:address"
    assert one_form_of("*") == "*"


def test_an_operation_of_a_later_release_is_nobodys() -> None:
    strange = entry(Operation.READ)
    strange.operation = 99
    negative = entry(Operation.READ)
    negative.operation = -1
    authorizer = holding(strange, negative)
    assert authorizer.rights(ALICE, TOPIC, "orders") == 0


def test_refusals_are_told_and_what_is_left_out_of_lists_is_not() -> None:
    told = []
    authorizer = holding(entry(Operation.READ))
    authorizer.on_denied = lambda *about: told.append(about)
    assert may(authorizer, Operation.READ)
    assert not authorizer.allows(ALICE, Operation.WRITE, TOPIC, "orders", quietly=True)
    assert told == []
    assert not may(authorizer, Operation.WRITE)
    assert told == [(ALICE, Operation.WRITE, TOPIC, "orders")]


# --- what is remembered


def test_a_change_of_entries_is_a_change_of_decisions() -> None:
    authorizer = Authorizer()
    entries = numbered([entry(Operation.READ), entry(Operation.WRITE, "o", pattern=PREFIXED)])
    authorizer.follow(entries)
    assert may(authorizer, Operation.READ) and may(authorizer, Operation.WRITE)
    changes = authorizer.changes
    authorizer.follow(entries)
    assert authorizer.changes == changes, "nothing has changed"
    less = {key: one for key, one in entries.items() if one.operation == Operation.WRITE}
    authorizer.follow(less)
    assert authorizer.changes == changes + 1
    assert not may(authorizer, Operation.READ) and may(authorizer, Operation.WRITE)
    authorizer.follow({})
    assert authorizer.rights(ALICE, TOPIC, "orders") == 0
    assert not authorizer._by_name and not authorizer._by_prefix and not authorizer._of_whom


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "MOST_DECISIONS", 10)
    authorizer = holding(entry(Operation.READ, "*"))
    for number in range(95):
        assert may(authorizer, Operation.READ, f"topic-{number}")
    assert len(authorizer._decisions) <= 10
    before = len(authorizer._decisions)
    assert may(authorizer, Operation.READ, "g" * 30_000)
    assert len(authorizer._decisions) == before, "long names are not kept"


def test_thousands_of_prefixes_are_looked_at_by_their_lengths() -> None:
    authorizer = holding(
        *(entry(Operation.READ, f"team-{n:05}-", pattern=PREFIXED) for n in range(10_000))
    )
    assert authorizer._prefix_lengths[TOPIC] == {11: 10_000}
    assert may(authorizer, Operation.READ, "team-09999-orders")
    assert not may(authorizer, Operation.READ, "team-10000-orders")


# --- against a list


NAMES = some.sampled_from(["a", "ab", "abc", "b", "ba", "*", "hard", "hardcode", "h"])
WHO = some.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
HOSTS = some.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
OPERATIONS = some.sampled_from([op for op in Operation if op >= Operation.ALL])
ENTRIES = some.builds(
    AccessControlEntryRecord,
    some.uuids().map(lambda found: found.bytes),
    some.sampled_from([TOPIC, GROUP]),
    NAMES,
    some.sampled_from([LITERAL, PREFIXED]),
    WHO,
    HOSTS,
    OPERATIONS,
    some.sampled_from([ALLOW, DENY]),
)
CLIENTS = some.builds(
    Client,
    some.builds(Principal, some.sampled_from(["User", "Group"]), some.sampled_from(["alice", "x"])),
    some.sampled_from(["10.0.0.1", "10.0.0.3"]),
)
IMPLIED = {
    Operation.DESCRIBE: {
        Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER
    },
    Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
}  # fmt: skip


def is_for(one: AccessControlEntryRecord, client: Client) -> bool:
    return one.principal in (str(client.principal), "User:*") and one.host in (
        client.client_host,
        "*",
    )


def naive(
    entries: list[AccessControlEntryRecord],
    client: Client,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    opened: bool,
) -> bool:
    """As StandardAuthorizer decides, with nothing but a loop."""
    matching = [
        one
        for one in entries
        if one.resource_type == kind
        and (
            one.resource_name in (name, "*")
            if one.pattern_type == LITERAL
            else name.startswith(one.resource_name)
        )
    ]
    if not matching:
        return opened
    found = [one for one in matching if is_for(one, client)]
    if any(
        one.permission_type == DENY and one.operation in (operation, Operation.ALL) for one in found
    ):
        return False
    allowing = IMPLIED.get(operation, {operation}) | {Operation.ALL}
    return any(one.permission_type == ALLOW and one.operation in allowing for one in found)


def naive_somewhere(
    entries: list[AccessControlEntryRecord],
    client: Client,
    operation: Operation,
    kind: ResourceType,
    *,
    opened: bool,
) -> bool:
    """As the interface Authorizer of Apache Kafka does it, step by step."""
    if naive(entries, client, operation, kind, "hardcode", opened=opened):
        return True
    found = [
        one
        for one in entries
        if one.resource_type == kind
        and is_for(one, client)
        and one.operation in (operation, Operation.ALL)
    ]
    denied = [one for one in found if one.permission_type == DENY]
    allowed = [one for one in found if one.permission_type == ALLOW]

    def named(some: list[AccessControlEntryRecord], pattern: PatternType) -> set[str]:
        return {one.resource_name for one in some if one.pattern_type == pattern}

    if "*" in named(denied, LITERAL):
        return False
    if "*" in named(allowed, LITERAL):
        return True
    for pattern in (LITERAL, PREFIXED):
        for name in named(allowed, pattern):
            if pattern == LITERAL and name in named(denied, LITERAL):
                continue
            if not any(name.startswith(prefix) for prefix in named(denied, PREFIXED)):
                return True
    return False


@settings(max_examples=examples(100), deadline=None)
@given(
    some.lists(some.lists(ENTRIES, max_size=8), min_size=1, max_size=4),
    some.lists(CLIENTS, min_size=1, max_size=3),
    some.booleans(),
)
def test_the_index_decides_as_a_walk_over_all_entries(
    images: list[list[AccessControlEntryRecord]], clients: list[Client], opened: bool
) -> None:
    authorizer = Authorizer(open_if_no_entry=opened)
    kept: dict[bytes, AccessControlEntryRecord] = {}
    for number, new in enumerate(images):
        # Half of what was there goes, so that entries leave the index as well.
        kept = {one.id: one for one in list(kept.values())[number % 2 :: 2] + new}
        authorizer.follow(kept)
        entries = list(kept.values())
        for client in clients:
            for kind in (TOPIC, GROUP):
                for operation in (op for op in Operation if op > Operation.ALL):
                    for name in ("a", "ab", "abcd", "c", "hardcode"):
                        assert authorizer.allows(client, operation, kind, name) == naive(
                            entries, client, operation, kind, name, opened=opened
                        )
                    assert authorizer.allows_somewhere(client, operation, kind) == naive_somewhere(
                        entries, client, operation, kind, opened=opened
                    )


def test_a_super_user_may_write_somewhere_and_the_rights_of_all_operations_are_bits() -> None:
    authorizer = Authorizer(["User:alice"])
    assert authorizer.allows_somewhere(ALICE, Operation.WRITE, TOPIC)
    assert not authorizer.allows_somewhere(BOB, Operation.WRITE, TOPIC)
    assert authorizer.rights(ALICE, TOPIC, "x") == EVERYTHING
