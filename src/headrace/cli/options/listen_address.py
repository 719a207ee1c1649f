"""The common options of commands that listen: address, host names, certificate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from headrace.cli import output

MOST_PORT = 65_535
T = TypeVar("T")

TlsCertificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Serve by TLS: a certificate chain, PEM."),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its key, if it is in another file."),
]
Names = Annotated[
    list[str],
    typer.Option("--name", metavar="HOST", help="A host name of this server. Repeat for more."),
]


def address_of(said: str, option: str, such_as: str) -> tuple[str, int]:
    host, _, port = said.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MOST_PORT:
        sentence = f"{said!r} is not HOST:PORT, such as {such_as}."
        raise typer.BadParameter(sentence, param_hint=option)
    return host.strip("[]"), int(port)


def under_older_name(given: T, older: str | None, option: str, name: str) -> T | str:
    """What an option says, also by the name `option` that it had before."""
    if older is None:
        return given
    output.note(f"{option} is called {name} now; the older name still works.")
    return older


def teller(what: str, *, as_json: bool) -> Callable[[str], None]:
    """Says where it listens, in a sentence or in one line of JSON."""

    def tell(address: str) -> None:
        if as_json:
            output.write_json_line({"address": address})
        else:
            output.say(f"{what} is at {address}")
        sys.stdout.flush()

    return tell
