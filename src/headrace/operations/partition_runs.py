"""Partitions of topics as runs of numbers, so that a thousand of them fit into a line. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.admin.groups import Place

Runs = dict[str, list[tuple[int, int]]]  # first and last partition of each run, by topic


def runs_of(places: Iterable[Place]) -> Runs:
    """Topics and runs in ascending order."""
    found: Runs = {}
    for topic, partition in sorted(places):
        runs = found.setdefault(topic, [])
        if runs and runs[-1][1] == partition - 1:
            runs[-1] = (runs[-1][0], partition)
        else:
            runs.append((partition, partition))
    return found


def run_in_digits(run: tuple[int, int]) -> str:
    """`0-3`, or `7` for a run of one."""
    first, last = run
    return str(first) if first == last else f"{first}-{last}"
