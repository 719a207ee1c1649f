"""`headrace users`: who may log in by SCRAM, and with which password.

A password is asked for at the terminal, read from standard input, or made up and shown once or
written to a file; it is never an argument, where everybody on the machine could read it.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster.client_file import check_client_file, client_file, write_client_file
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.client.admin.users import DEFAULT_ITERATIONS, MECHANISMS, Users

app = typer.Typer(
    help="Users who log in by SCRAM: list, add, remove.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

MADE_UP_BYTES = 18


@app.command("list")
@cluster_options
def list_users(
    at: At,
    as_json: Json = False,
) -> None:
    """List the users of the cluster, with their mechanisms."""
    with at.connection() as cluster:
        found = Users(cluster).all()
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are none.")
    else:
        output.table(
            ("user", "mechanism", "iterations"),
            [
                (user.name, mechanism, iterations)
                for user in found
                for mechanism, iterations in user.mechanisms.items()
            ],
        )


@app.command()
@cluster_options
def add(
    at: At,
    name: Annotated[str, typer.Argument(metavar="USER", help="The user.", show_default=False)],
    mechanism: Annotated[
        list[str],
        typer.Option(
            "--mechanism",
            metavar="MECHANISM",
            help=f"{' or '.join(MECHANISMS)}; repeat for both (default: both).",
        ),
    ] = [],
    generate: Annotated[
        bool, typer.Option("--generate", help="Generate a password and show it once.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--client-file",
            metavar="FILE",
            help="Write a client file for the user: by Java's names if it ends in "
            ".properties, else by librdkafka's.",
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(metavar="N", help="How often the password is hashed.", min=4096)
    ] = DEFAULT_ITERATIONS,
    as_json: Json = False,
) -> None:
    """Add a user, or give one a new password.

    The password is asked for, or is the first line of standard input if that is not a terminal.
    """
    chosen = [each.upper() for each in mechanism] or list(MECHANISMS)
    with at.connection() as cluster:
        if file is not None:
            check_client_file(file, cluster)
        password = secrets.token_urlsafe(MADE_UP_BYTES) if generate else ask_password(name)
        if file is not None:  # or a password that no file can hold is noticed too late
            client_file(
                cluster.settings, user=name, password=password, mechanism="", for_java=False
            )
        users = Users(cluster)
        for each in chosen:
            users.set_password(name, password, mechanism=each, iterations=iterations)
        if file is not None:
            write_client_file(file, cluster, user=name, password=password, mechanisms=chosen)
    if as_json:
        answer: dict[str, object] = {"user": name, "mechanisms": chosen}
        answer |= {"client_file": str(file)} if file is not None else {}
        answer |= {"password": password} if generate else {}
        output.answer_json(answer)
        return
    output.note(f"{name} can log in by {' and '.join(chosen)}.")
    if file is not None:
        output.note(f"{file} has the password. Next: headrace topics list --client-config {file}")
    elif generate:
        output.say(password)


@app.command()
@cluster_options
def remove(
    at: At,
    name: Annotated[str, typer.Argument(metavar="USER", help="The user.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Remove a user; connections that are logged in stay until they end."""
    with at.connection() as cluster:
        mechanisms = Users(cluster).remove(name)
    if as_json:
        output.answer_json({"user": name, "removed": mechanisms})
    else:
        output.note(f"{name} cannot log in any more.")


def ask_password(name: str) -> str:
    if sys.stdin.isatty():
        password = output.ask_password(f"Password of {name}")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Failure("A password must have at least one character.")
    return password
