"""`headrace acls`: who may do what.

`--producer` and `--consumer` stand for the entries that a client of that kind needs, as in Apache's
kafka-acls. A principal without a type is a user. Removing shows what is found and asks first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, TypeVar

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.client.admin.acl_kits import FOR_CONSUMERS, FOR_PRODUCERS
from headrace.client.admin.acls import Acl, AclFilter, Acls, number, word
from headrace.client.errors import ClientError
from headrace.wire.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    WILDCARD,
    Operation,
    ResourceType,
)

app = typer.Typer(
    help="ACLs: list, add and remove access control entries.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

RESOURCES = "Resources"

Topics = Annotated[
    list[str],
    typer.Option("--topic", metavar="NAME", help="A topic, * for all.", rich_help_panel=RESOURCES),
]
Groups = Annotated[
    list[str],
    typer.Option("--group", metavar="NAME", help="A group, * for all.", rich_help_panel=RESOURCES),
]
Ids = Annotated[
    list[str],
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="A transactional id, * for all.",
        rich_help_panel=RESOURCES,
    ),
]
OnCluster = Annotated[
    bool, typer.Option("--cluster", help="The cluster itself.", rich_help_panel=RESOURCES)
]
Prefixed = Annotated[
    bool,
    typer.Option("--prefixed", help="The names are prefixes.", rich_help_panel=RESOURCES),
]
Principals = Annotated[
    list[str],
    typer.Option(
        "--principal",
        "-p",
        metavar="NAME",
        help="The user: alice or User:alice, * for everybody. Repeat for more.",
    ),
]
Operations = Annotated[
    list[str],
    typer.Option(
        "--operation", "-o", metavar="WORD", help="read, write, describe ... all. Repeat for more."
    ),
]
Hosts = Annotated[
    list[str],
    typer.Option("--host", metavar="ADDRESS", help="The client's address (default: any)."),
]
AsProducer = Annotated[
    bool,
    typer.Option("--producer", help="The rights of a producer, on --topic and --transactional-id."),
]
AsConsumer = Annotated[
    bool, typer.Option("--consumer", help="The rights of a consumer, on --topic and --group.")
]
Deny = Annotated[
    bool, typer.Option("--deny", help="Entries that deny instead of entries that allow.")
]

Named = dict[ResourceType, list[str]]
Said = TypeVar("Said")


@app.command("list")
@cluster_options
def list_entries(
    at: At,
    topic: Topics = [],
    group: Groups = [],
    transactional_id: Ids = [],
    cluster: OnCluster = False,
    match: Annotated[
        bool,
        typer.Option(
            "--match", help="Also entries with prefixes and * that match the named resources."
        ),
    ] = False,
    principal: Principals = [],
    as_json: Json = False,
) -> None:
    """List entries: all, or those of some resources or principals."""
    filters = [
        replace(one, pattern="match" if match else None)
        for one in filters_for(
            _named(topic, group, transactional_id, cluster),
            {},
            principals=[_principal(one) for one in principal],
        )
    ]
    with at.connection() as reached:
        acls = Acls(reached)
        found = sorted({entry for one in filters for entry in acls.find(one)})
    _tell(found, as_json=as_json, nothing="There are no such entries.")


@app.command()
@cluster_options
def add(
    at: At,
    principal: Principals = [],
    operation: Operations = [],
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    deny: Deny = False,
    host: Hosts = [],
    topic: Topics = [],
    group: Groups = [],
    transactional_id: Ids = [],
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    as_json: Json = False,
) -> None:
    """Add entries; those that are there already stay."""
    if not principal:
        raise typer.BadParameter("Name the user: --principal alice.")
    named = _named(topic, group, transactional_id, cluster)
    wanted = entries_for(
        named,
        operations_on(named, operation, producer=producer, consumer=consumer),
        principals=[_principal(one) for one in principal],
        hosts=host or [WILDCARD],
        permission="deny" if deny else "allow",
        prefixed=prefixed,
    )
    with at.connection() as reached:
        Acls(reached).add(wanted)
    _tell(wanted, as_json=as_json, nothing="")


@app.command()
@cluster_options
def remove(
    at: At,
    principal: Principals = [],
    operation: Operations = [],
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    deny: Deny = False,
    host: Hosts = [],
    topic: Topics = [],
    group: Groups = [],
    transactional_id: Ids = [],
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Remove entries: those that all given options describe. On a terminal it asks first."""
    named = _named(topic, group, transactional_id, cluster)
    if not named and not principal:
        raise typer.BadParameter(
            "Name the entries: resources such as --topic orders, or --principal."
        )
    chosen = bool(operation) or producer or consumer
    operations = (
        operations_on(named, operation, producer=producer, consumer=consumer) if chosen else {}
    )
    filters = filters_for(
        named,
        operations,
        principals=[_principal(one) for one in principal],
        hosts=host,
        permission="deny" if deny else None,
        prefixed=prefixed,
    )
    with at.connection() as reached:
        acls = Acls(reached)
        if not yes and sys.stdin.isatty() and sys.stdout.isatty():
            found = sorted({entry for one in filters for entry in acls.find(one)})
            _tell(found, as_json=False, nothing="There are no such entries.")
            if found and not output.confirmed(f"Remove these {len(found)}?"):
                raise Failure("Nothing was removed.")
        gone = acls.remove(filters)
    _tell(gone, as_json=as_json, nothing="There were no such entries.")


def _named(topics: list[str], groups: list[str], ids: list[str], cluster: bool) -> Named:
    named = {
        ResourceType.TOPIC: topics,
        ResourceType.GROUP: groups,
        ResourceType.TRANSACTIONAL_ID: ids,
        ResourceType.CLUSTER: [CLUSTER_NAME] if cluster else [],
    }
    return {kind: names for kind, names in named.items() if names}


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def operations_on(
    named: Named, words: list[str], *, producer: bool, consumer: bool
) -> dict[ResourceType, list[Operation]]:
    """The patterns for each type of resource; refuses meaningless combinations."""
    if not named:
        raise typer.BadParameter(
            "Name the resource: --topic, --group, --transactional-id or --cluster."
        )
    if not words and not producer and not consumer:
        raise typer.BadParameter(
            "Name the operation: --operation read, or --producer or --consumer."
        )
    found: dict[ResourceType, list[Operation]] = {kind: [] for kind in named}
    for kit, wanted, needs in (
        (FOR_PRODUCERS, producer, "--topic"),
        (FOR_CONSUMERS, consumer, "--topic and --group"),
    ):
        if wanted and not set(named) & set(kit):
            raise typer.BadParameter(f"That kind of client needs {needs}.")
        if wanted:
            for kind, operations in kit.items():
                if kind in found:
                    found[kind] += operations
    for text in words:
        try:
            operation = number(Operation, text)
        except ClientError as wrong:
            raise typer.BadParameter(str(wrong)) from wrong
        for kind in named:
            if operation not in (*OPERATIONS_ON[kind], Operation.ALL):
                possible = ", ".join(word(Operation, one) for one in OPERATIONS_ON[kind])
                raise typer.BadParameter(
                    f"The operation {text} does not apply to a {word(ResourceType, kind)}; "
                    f"possible: {possible}, all."
                )
            found[kind].append(operation)
    return {kind: list(dict.fromkeys(operations)) for kind, operations in found.items()}


def entries_for(
    named: Named,
    operations: dict[ResourceType, list[Operation]],
    *,
    principals: list[str],
    hosts: list[str],
    permission: str,
    prefixed: bool,
) -> list[Acl]:
    return [
        Acl(
            word(ResourceType, kind),
            name,
            _pattern(kind, name, prefixed),
            principal,
            host,
            word(Operation, operation),
            permission,
        )
        for kind, names in named.items()
        for name in names
        for principal in principals
        for host in hosts
        for operation in operations[kind]
    ]


def filters_for(
    named: Named,
    operations: dict[ResourceType, list[Operation]],
    *,
    principals: list[str],
    hosts: Sequence[str] = (),
    permission: str | None = None,
    prefixed: bool = False,
) -> list[AclFilter]:
    """A missing option matches everything, but a name is literal unless it is given as a prefix."""
    resources: list[tuple[ResourceType | None, str | None]] = [
        (kind, name) for kind, names in named.items() for name in names
    ]
    return [
        AclFilter(
            None if kind is None else word(ResourceType, kind),
            name,
            None if kind is None or name is None else _pattern(kind, name, prefixed),
            principal,
            host,
            None if operation is None else word(Operation, operation),
            permission,
        )
        for kind, name in resources or [(None, None)]
        for principal in _or_any(principals)
        for host in _or_any(hosts)
        for operation in _or_any(operations.get(kind, ()) if kind is not None else ())
    ]


def _or_any(said: Sequence[Said]) -> Sequence[Said | None]:
    return said or (None,)


def _pattern(kind: ResourceType, name: str, prefixed: bool) -> str:
    if prefixed and (kind is ResourceType.CLUSTER or name == WILDCARD):
        raise typer.BadParameter(f"{name} is not the beginning of a name: leave --prefixed out.")
    return "prefixed" if prefixed else "literal"


def _tell(found: list[Acl], *, as_json: bool, nothing: str) -> None:
    if as_json:
        output.answer_json([asdict(entry) for entry in found])
    elif not found:
        output.note(nothing)
    else:
        rows: list[tuple[output.Cell, ...]] = [
            (
                entry.principal,
                entry.permission,
                entry.operation,
                entry.resource_type,
                entry.resource + ("..." if entry.pattern == "prefixed" else ""),
                entry.host,
            )
            for entry in found
        ]
        output.table(("principal", "permission", "operation", "type", "resource", "host"), rows)
