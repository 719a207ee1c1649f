"""The option with which a command that runs for long says how much it logs."""

from __future__ import annotations

from typing import Annotated

import typer

LEVELS = ("debug", "info", "warning", "error")


def _level(given: str) -> str:
    level = given.lower()
    if level not in LEVELS:
        raise typer.BadParameter(f"{given} is not one of {', '.join(LEVELS)}.")
    return level.upper()


LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        callback=_level,
        help="The lowest level that is logged: debug, info, warning or error.",
    ),
]
