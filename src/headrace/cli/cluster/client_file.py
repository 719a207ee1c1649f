"""A file by which one user's clients get in: what `headrace users add --client-file` writes.

It copies the settings of the user who runs the command, with the new name and password: the same
address, the same certificate. By Java's names if its own name ends in `.properties`, by
librdkafka's otherwise; the commands of Headrace take both. Only its owner can read it; no file is
overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.failure import Failure
from headrace.client.connection import ClientSettings
from headrace.client.java_names import as_java

JAVA = ".properties"
STRONGEST = "SCRAM-SHA-512"
# Of the connection's settings, those by which any client finds the cluster and trusts it.
KEPT = (
    "bootstrap.servers",
    "security.protocol",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
)


def check_client_file(path: Path, connection: ClientSettings) -> None:
    """Before the user is made: what would be in the way later."""
    if path.exists():
        raise Failure(f"{path} is there already; name another file, or remove it.")
    if not path.absolute().parent.is_dir():
        raise Failure(f"There is no folder {path.absolute().parent} for {path.name}.")
    if not connection.settings.get("security.protocol", "").lower().startswith("sasl_"):
        raise Failure(
            "A client file copies your own settings, and these do not log in. Connect to the "
            "listener at which users log in, with --client-config."
        )


def write_client_file(
    path: Path, connection: ClientSettings, *, user: str, password: str, mechanisms: Sequence[str]
) -> None:
    text = client_file(
        connection.settings,
        user=user,
        password=password,
        mechanism=STRONGEST if STRONGEST in mechanisms else mechanisms[0],
        for_java=path.suffix == JAVA,
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as failure:
        raise Failure(
            f"{user} was added, but {path} cannot be written: {failure.strerror}."
        ) from failure


def client_file(
    settings: dict[str, str], *, user: str, password: str, mechanism: str, for_java: bool
) -> str:
    kept = {name: settings[name] for name in KEPT if name in settings}
    if "ssl.ca.location" in kept:
        kept["ssl.ca.location"] = str(Path(kept["ssl.ca.location"]).absolute())
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    written = kept | login
    if for_java:
        written = {"bootstrap.servers": kept["bootstrap.servers"], **as_java(written)}
    return "".join(f"{name}={_one_line(value)}\n" for name, value in written.items())


def _one_line(value: str) -> str:
    """Neither form of file can hold these, and a password that comes out changed cannot log in."""
    if not value.isprintable() or value != value.strip() or "\\" in value:
        raise Failure(
            "A client file cannot hold a name or password with a backslash, a control character "
            "or a space at its end: choose another, or leave --client-file out."
        )
    return value
