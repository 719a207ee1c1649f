"""Suggestions for a mistyped name: of a command, an option, a setting.

A suggestion is never carried out: it only ends a sentence that refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

MOST = 3
# Below this share of common letters a suggestion confuses. Seen: `desribe` has 0.93 with
# `describe`, `retnetion.ms` 0.92 with `retention.ms`, `--keys` 0.44 with `--delay`.
LEAST_ALIKE = 0.65
# From here on it is a typing error. Seen: a missing letter in `min.insync.replica` is 0.97;
# settings of older releases of Kafka are at most 0.89 like one of today
# (`control.plane.listener.name`).
A_SLIP = 0.9


def close_to(word: str, known: Iterable[str]) -> list[str]:
    """Similar names, the best first: those with the same beginning, then those with most letters in
    common."""
    names = {name.lstrip("-").lower(): name for name in known}
    wanted = word.lstrip("-").lower()
    if not wanted:
        return []
    begin_alike = [
        plain
        for plain in names
        if len(wanted) > 1
        and (plain.startswith(wanted) or (wanted.startswith(plain) and len(plain) > 2))
    ]
    alike = get_close_matches(wanted, names, n=MOST, cutoff=LEAST_ALIKE)
    # Sorted by nearness, not by name: `partitions` before `partition-count` for `partition`.
    begin_alike.sort(key=lambda plain: abs(len(plain) - len(wanted)))
    best = list(dict.fromkeys([*(plain for plain in alike if plain == wanted), *begin_alike]))
    return [names[plain] for plain in dict.fromkeys([*best, *alike])][:MOST]


def nearly(word: str, known: Iterable[str]) -> str | None:
    """The name that differs by a typing error, if there is one."""
    found = get_close_matches(word, known, n=1, cutoff=A_SLIP)
    return found[0] if found else None


def did_you_mean(
    word: str, known: Iterable[str], synonyms: Mapping[str, Sequence[str]] = {}
) -> str:
    """` Did you mean X?`, or an empty text if no name is near."""
    known = list(known)
    meant = [name for name in synonyms.get(word.lower(), ()) if name in known]
    meant = meant or close_to(word, known)
    if not meant:
        return ""
    first, *others = meant
    return f" Did you mean {', '.join([first, *others[:-1]])}{_or(others)}?"


def _or(others: list[str]) -> str:
    return f" or {others[-1]}" if others else ""
