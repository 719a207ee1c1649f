"""Folders that a command is given: paths of this machine, never addresses."""

from __future__ import annotations

from pathlib import Path

import typer

from headrace.wire.contract.addresses import address_in


def local_folder(given: str | Path) -> Path:
    """For `typer.Option(parser=)`."""
    if (address := address_in(given)) is not None:
        raise typer.BadParameter(
            f"{address} is an address, and this is a folder of this machine: give a path, such as "
            "/data/headrace. Stores behind an address are not supported here."
        )
    return Path(given)
