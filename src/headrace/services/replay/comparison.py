"""Compares the results of a shadow with those of its app for the same records. Pure.

Results of the SDK carry the id of the record that they came from, the group and a number: the group
is left out, and what is left names the same result on both sides. Compared are key, value and the
headers that the handler gave. A result with an id that the handler chose is identified by that id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.app.headers import MESSAGE_ID
from headrace.client.records import Record
from headrace.wire.contract.headers import PREFIX

MOST_SHOWN = 10
# Enough for a long replay, and 100 bytes each in memory.
MOST_COMPARED = 2_000_000
# Headers of tracing; they differ from run to run.
_OF_TRACES = frozenset({"traceparent", "tracestate", "baggage"})


class TooMany(ValueError):
    """More results than are compared in one go."""


@dataclass(slots=True)
class Comparison:
    topic: str
    same: int = 0
    different: list[str] = field(default_factory=list)  # ids
    only_before: list[str] = field(default_factory=list)  # the app published it, the shadow not
    only_now: list[str] = field(default_factory=list)
    without_id: int = 0  # cannot be matched

    @property
    def is_equal(self) -> bool:
        return not (self.different or self.only_before or self.only_now)


def results_of(records: Iterable[Record], group: str) -> tuple[dict[str, bytes], int]:
    """Digest by name of each result of a group, and how many have no id. A result that was
    published twice counts once: it has the same id and the same contents."""
    found: dict[str, bytes] = {}
    without = 0
    for record in records:
        given = record.header(MESSAGE_ID)
        if given is None:
            without += 1
            continue
        source, mark, number = given.decode("utf-8", "replace").rpartition("~")
        source, tilde, by = source.rpartition("~")
        if not mark or not tilde or by != group:
            continue  # of another group, or an id that the handler chose
        if len(found) >= MOST_COMPARED:
            raise TooMany(f"More than {MOST_COMPARED:,} results are not compared in one go.")
        found[f"{source}~{number}"] = _digest(record)
    return found, without


def compared(
    topic: str, before: dict[str, bytes], now: dict[str, bytes], *, replayed: Iterable[str] | None
) -> Comparison:
    """`replayed` names the source records that the shadow has seen; None: all of `before`."""
    seen = None if replayed is None else set(replayed)
    result = Comparison(topic)
    for name, digest in now.items():
        if name not in before:
            result.only_now.append(name)
        elif before[name] == digest:
            result.same += 1
        else:
            result.different.append(name)
    result.only_before = [
        name
        for name in before
        if name not in now and (seen is None or name.rpartition("~")[0] in seen)
    ]
    return result


def _digest(record: Record) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    headers = [
        (name, value)
        for name, value in record.headers
        if not name.startswith(PREFIX) and name not in _OF_TRACES
    ]
    digest.update(repr((record.key, record.value, headers)).encode())
    return digest.digest()
