"""Options of the form KEY=VALUE that may be repeated; a later one wins."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def key_values(words: Iterable[str], *, option: str) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"Write KEY=VALUE, not {word!r}.", param_hint=option)
        found[key.strip()] = value.strip()
    return found
