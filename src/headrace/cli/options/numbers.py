"""Numbers that people type: what a range of typer lets through and no command can use."""

from __future__ import annotations

import math

import typer


def finite(given: float | None, option: str) -> float | None:
    """`nan` is in every range, because no comparison with it holds."""
    if given is not None and not math.isfinite(given):
        raise typer.BadParameter(f"{given} is not a number here.", param_hint=option)
    return given
