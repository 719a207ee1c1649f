"""`headrace quotas`: how much users, clients and addresses may do per second.

`set` and `remove` name an entity by --user, --client-id, both, or --ip; `--default user` stands for
all users that have no limit of their own, and so do `--default client-id` and `--default ip`. The
words of the limits are Kafka's, and `kafka-configs` sees and sets the same ones.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.key_values import key_values
from headrace.client.admin.quotas import LIMITS, TYPES, Quota, Quotas

app = typer.Typer(
    help="Limits of users, clients and addresses: list, set, remove.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

User = Annotated[str | None, typer.Option("--user", help="The user.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="The client id.")]
Ip = Annotated[str | None, typer.Option("--ip", help="The client's address.")]
Defaults = Annotated[
    list[str],
    typer.Option("--default", metavar="TYPE", help=f"The default of a type: {', '.join(TYPES)}."),
]


@app.command("list")
@cluster_options
def list_quotas(
    at: At,
    as_json: Json = False,
) -> None:
    """List all limits of the cluster."""
    with at.connection() as cluster:
        found = Quotas(cluster).all()
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are none.")
    else:
        rows = [(_title(q), key, _written(value)) for q in found for key, value in q.limits.items()]
        output.table(("entity", "limit", "per second"), rows)


@app.command("set")
@cluster_options
def set_quotas(
    at: At,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT=VALUE...",
            help=f"LIMIT is one of {', '.join(LIMITS)}.",
            show_default=False,
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Defaults = [],
    as_json: Json = False,
) -> None:
    """Set limits; those that are not named stay as they are."""
    entity = _entity(user, client_id, ip, default)
    wanted = {key: _number(key, text) for key, text in key_values(limits, option="LIMIT").items()}
    with at.connection() as cluster:
        Quotas(cluster).alter(entity, wanted)
    _answer(Quota(entity, wanted), "Set", as_json=as_json)


@app.command("remove")
@cluster_options
def remove_quotas(
    at: At,
    limits: Annotated[
        list[str],
        typer.Argument(metavar="LIMIT...", help="Which limits.", show_default=False),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Defaults = [],
    as_json: Json = False,
) -> None:
    """Remove limits."""
    entity = _entity(user, client_id, ip, default)
    unknown = sorted(set(limits) - set(LIMITS))
    if unknown:
        raise Failure(f"There is no limit {', '.join(unknown)}; there are {', '.join(LIMITS)}.")
    with at.connection() as cluster:
        Quotas(cluster).alter(entity, dict.fromkeys(limits))
    _answer(Quota(entity, {}), "Removed", as_json=as_json)


def _entity(
    user: str | None, client_id: str | None, ip: str | None, defaults: list[str]
) -> dict[str, str | None]:
    unknown = sorted(set(defaults) - set(TYPES))
    if unknown:
        raise Failure(f"--default takes {', '.join(TYPES)}, not {', '.join(unknown)}.")
    names = {"user": user, "client-id": client_id, "ip": ip}
    entity: dict[str, str | None] = {kind: name for kind, name in names.items() if name}
    twice = sorted(set(entity) & set(defaults))
    if twice:
        raise Failure(f"Name one {twice[0]} or the default, not both.")
    entity |= dict.fromkeys(defaults)
    if not entity:
        raise Failure("Name whom the limit is for: --user, --client-id, both, or --ip.")
    return entity


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Failure(f"{key} is a number, not '{text}'.") from None


def _written(value: float) -> str:
    """1048576 and not 1.04858e+06, and 0.5 as it is."""
    return str(int(value)) if value.is_integer() else str(value)


def _title(quota: Quota) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in quota.entity.items())


def _answer(quota: Quota, done: str, *, as_json: bool) -> None:
    if as_json:
        output.answer_json(quota)
    else:
        output.say(f"{done} for {_title(quota)}.")
