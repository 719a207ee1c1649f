"""`headrace security init`: a certificate authority, a certificate, a first user, client files.

One step from nothing to a node that may face a network: `headrace start --secure` uses what it has
written. Everything in that folder can be replaced by files of one's own.
"""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import Json
from headrace.cli.options.local_folder import local_folder

app = typer.Typer(
    help="Certificates and a first user for a node.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

DEFAULT_FOLDER = Path("headrace-security")
ALWAYS = ("localhost", "127.0.0.1", "::1")


@app.callback()
def about() -> None:
    """A group, though it has one command for now."""


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", metavar="DIR", parser=local_folder, help="Where the files go; must be new."
        ),
    ] = DEFAULT_FOLDER,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the node will listen.")
    ] = "localhost:9092",
    host: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="A name or address by which clients reach the node. Repeat for more.",
        ),
    ] = [],
    user: Annotated[str, typer.Option(metavar="USER", help="The first user.")] = "admin",
    as_json: Json = False,
) -> None:
    """Make a certificate authority, a server certificate, a first user and a client file."""
    from headrace.cli.secured.folder import SecurityFolder

    if re.fullmatch(r"[A-Za-z0-9._@-]+", user) is None:
        raise Failure("The first user's name must be made of letters, digits and . _ @ -")
    written = SecurityFolder(folder)
    names = list(dict.fromkeys([*host, *ALWAYS, socket.gethostname()]))
    written.write(user=user, address=listen, hosts=names, now=datetime.now(UTC))
    client = written.path("admin.properties")
    if as_json:
        output.answer_json({"folder": str(written.folder), "client": str(client), "hosts": names})
        return
    output.say(f"Written to {written.folder}. Next:")
    output.say(f"  headrace start --secure{_at(folder)}")
    output.say(f"  headrace topics list --client-config {client}")
    output.note(
        f"The certificate is for {', '.join(names)}. The password of {user} is in {client.name}."
    )


def _at(folder: Path) -> str:
    return "" if folder == DEFAULT_FOLDER else f" --security {folder}"
