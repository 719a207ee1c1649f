"""Forms of the security page, turned into requests and command lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headrace.client.admin.acl_kits import (
    ANYTHING,
    CLUSTER,
    FOR_CONSUMERS,
    FOR_PRODUCERS,
    Kit,
    operations_of,
    operations_on,
)
from headrace.client.admin.acls import Acl
from headrace.client.admin.quotas import LIMITS, TYPES
from headrace.console.query import Unreadable, needed, text_in

LONGEST_NAME = 255
SHORTEST_PASSWORD = 8
PRODUCER, CONSUMER = "producer", "consumer"
KITS: dict[str, Kit] = {PRODUCER: FOR_PRODUCERS, CONSUMER: FOR_CONSUMERS}
# The most common choices first; then the single operations.
ACCESS = {
    PRODUCER: "write to it, as a producer",
    CONSUMER: "read it, as a consumer",
    "all": "do everything with it",
}
RESOURCES = {
    "topic": "topic",
    "group": "group",
    "transactional-id": "transactional id",
    "cluster": "the cluster itself",
}
OPTIONS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}
LIMIT_WORDS = {
    "producer_byte_rate": "bytes written, per second",
    "consumer_byte_rate": "bytes read, per second",
    "request_percentage": "request time, in percent",
    "controller_mutation_rate": "partitions created or deleted per second",
    "connection_creation_rate": "new connections, per second",
}
LIMITED = {
    "user": "a user",
    "client-id": "a client id",
    "ip": "an address",
}


@dataclass(slots=True)
class QuotaRow:
    whom: str
    entity: Mapping[str, str | None]
    limit: str
    amount: str


def operations() -> list[str]:
    """Returns the operations of all kinds of resources, by Kafka's names."""
    return sorted({each for kind in RESOURCES for each in operations_on(kind)})


def principal_from(form: Mapping[str, Any]) -> str:
    said = needed(form, "principal", "Who").strip()
    if len(said) > LONGEST_NAME or not said.isprintable():
        raise Unreadable("A name has at most 255 signs that can be printed.")
    return said if ":" in said else f"User:{said}"


def entries_from(form: Mapping[str, Any]) -> list[Acl]:
    """One entry, or the few that a producer or a consumer needs."""
    kind = text_in(form, "resource_type")
    if kind not in RESOURCES:
        raise Unreadable("Choose a resource: a topic, a group, a transactional id or the cluster.")
    name = CLUSTER if kind == "cluster" else needed(form, "resource", "The name").strip()
    prefixed = text_in(form, "prefixed") == "1"
    if prefixed and (kind == "cluster" or name == ANYTHING):
        raise Unreadable(f"{name} is not the beginning of a name. Nothing was changed.")
    permission = "deny" if text_in(form, "permission") == "deny" else "allow"
    host = text_in(form, "host").strip() or ANYTHING
    who = principal_from(form)
    return [
        Acl(kind, name, "prefixed" if prefixed else "literal", who, host, operation, permission)
        for operation in _operations(text_in(form, "access"), kind)
    ]


def _operations(access: str, kind: str) -> list[str]:
    if access in KITS:
        found = operations_of(KITS[access], kind)
        if not found:
            raise Unreadable(f"A {access} needs no permission on this type of resource: {kind}.")
        return found
    possible = operations_on(kind)
    if access != "all" and access not in possible:
        raise Unreadable(
            f"{access!r} is not an operation on this type of resource ({kind}); possible: "
            f"{', '.join(possible)}, all."
        )
    return [access]


def entry_from(form: Mapping[str, Any]) -> Acl:
    """Reads a whole row of the page as an ACL."""
    return Acl(*(text_in(form, field.name) for field in fields(Acl)))


def entity_from(form: Mapping[str, Any]) -> dict[str, str | None]:
    """Reads an entity: each type has a name, or None for the default limit."""
    found: dict[str, str | None] = {}
    for kind in TYPES:
        name = text_in(form, kind).strip()
        if name:
            found[kind] = name
        elif text_in(form, f"default-{kind}") == "1":
            found[kind] = None
    if not found:
        raise Unreadable("Choose whom the limit is for. Nothing was changed.")
    return found


def limit_from(form: Mapping[str, Any]) -> tuple[str, float]:
    name, said = text_in(form, "limit"), needed(form, "amount", "The limit").strip()
    if name not in LIMITS:
        raise Unreadable(f"{name!r} is not a quota; possible are {', '.join(LIMITS)}.")
    try:
        amount = float(said)
    except ValueError:
        raise Unreadable(f"A limit is a number, not {said!r}. Nothing was changed.") from None
    if not 0 < amount < 1e18:
        raise Unreadable("A limit is more than 0. Nothing was changed.")
    return name, amount


# ---- on the command line


def entry_words(entries: list[Acl], access: str) -> list[str] | None:
    """Returns the words after `headrace acls add` or `remove`; None if the command line cannot
    express the entry."""
    first = entries[0]
    if first.resource_type != "cluster" and first.resource_type not in OPTIONS:
        return None
    who = first.principal.removeprefix("User:")
    words = ["--principal", who if ":" not in who else first.principal]
    words += [f"--{access}"] if access in KITS else ["--operation", first.operation]
    if first.resource_type == "cluster":
        words.append("--cluster")
    else:
        words += [OPTIONS[first.resource_type], first.resource]
    words += ["--prefixed"] if first.pattern == "prefixed" else []
    words += ["--host", first.host] if first.host != ANYTHING else []
    return words + (["--deny"] if first.permission == "deny" else [])


def entity_words(entity: Mapping[str, str | None]) -> list[str]:
    """Returns the words after `headrace quotas set` or `remove`."""
    words = []
    for kind, name in entity.items():
        words += ["--default", kind] if name is None else [f"--{kind}", name]
    return words


def amount_text(amount: float) -> str:
    return str(int(amount)) if amount.is_integer() else str(amount)
