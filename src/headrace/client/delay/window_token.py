"""The token that the delay service of a secured cluster requires before it shows messages.

The service listens on loopback, where every user of the machine can connect. With a login to the
cluster, it answers questions about messages only to a client with this token. The token is in the
state folder of the user who runs the service, in a file that only that user can read; each run of
the service makes a new one. The console checks the rights of its own users before it asks.
"""

from __future__ import annotations

import logging
import re
import secrets
from pathlib import Path

from headrace.private_files import private_folder, state_folder, write_private

log = logging.getLogger(__name__)

TOKEN_BYTES = 32
LARGEST_FILE_BYTES = 1_000


def new_token(address: str) -> str:
    """Make a token for the service at this address and write it to a file of this user."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    path = _path(address)
    try:
        if path is None:
            raise OSError(0, "this user has no home folder")
        private_folder(path.parent)
        write_private(path, token)
    except OSError as problem:
        log.warning(
            "delayed messages cannot be listed: the token cannot be written to %s: %s",
            path or "a state folder",
            problem.strerror,
        )
    return token


def token_for(address: str) -> str | None:
    """The token; None if this user runs no service at this address."""
    path = _path(address)
    try:
        if path is None or path.stat().st_size > LARGEST_FILE_BYTES:
            return None
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None


def forget(address: str) -> None:
    path = _path(address)
    if path is not None:
        path.unlink(missing_ok=True)


def _path(address: str) -> Path | None:
    """The token's file; None without a state folder. The address is cleaned: it comes from the
    group, where other members can write any text."""
    folder = state_folder()
    name = re.sub(r"[^0-9A-Za-z.-]", "_", address)[:100]
    return None if folder is None else folder / "delay" / f"{name}.token"
