"""The journal of actions on dead letters: the compacted topic below, one key per letter.

An entry is written in the transaction that sends the letter again, so a letter is settled if and
only if it was sent: a command that is repeated, after a crash or by mistake, continues where the
first one ended. Letters stay where they are (their topic's retention removes them); what is settled
is no longer listed. Entries are kept for 90 days, longer than the letters themselves by default. An
entry also holds when its letter was parked: a topic that was deleted and created again has the same
offsets, with other letters.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.records import Record
from headrace.wire.contract.own_records import OwnRecords, json_object, key_text, moment_ms

log = logging.getLogger(__name__)

SETTLED_TOPIC = "headrace.dead-letters.settled"
SETTLED_SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": str(90 * 86_400_000)}

REDRIVEN = "redriven"
DISCARDED = "discarded"


@dataclass(slots=True)
class Settled:
    """The outcome of one letter."""

    letter: str  # topic/partition/offset of the dead letter
    parked_at_ms: int | None
    action: str  # REDRIVEN or DISCARDED
    by: str
    at_ms: int
    reason: str = ""
    sent_to: str = ""  # topic/partition, for REDRIVEN
    edited: bool = False

    @property
    def key(self) -> bytes:
        return self.letter.encode()

    @property
    def value(self) -> bytes:
        return json.dumps(
            {
                "parked_at_ms": self.parked_at_ms,
                "action": self.action,
                "by": self.by,
                "at_ms": self.at_ms,
                "reason": self.reason,
                "sent_to": self.sent_to,
                "edited": self.edited,
            }
        ).encode()


def read_settled(key: bytes | None, value: bytes | None) -> Settled:
    """Raises one of `own_records.FAULTS` for a record that is not an entry; fields that a later
    version may add are ignored."""
    letter = key_text(key)
    entry = json_object(value)
    parked_at_ms = entry.get("parked_at_ms")
    return Settled(
        letter=letter,
        parked_at_ms=None if parked_at_ms is None else moment_ms(parked_at_ms),
        action=str(entry["action"]),
        by=str(entry.get("by", "")),
        at_ms=moment_ms(entry.get("at_ms", 0)),
        reason=str(entry.get("reason", "")),
        sent_to=str(entry.get("sent_to", "")),
        edited=bool(entry.get("edited", False)),
    )


def settled_by_letter(records: Iterable[Record[bytes, bytes]]) -> dict[str, Settled]:
    """The last entry of each letter; records that cannot be read are skipped and logged."""
    own = OwnRecords(SETTLED_TOPIC, log)
    found = {}
    for each in records:
        if each.value is None:
            continue
        entry = own.read(
            read_settled, each.key, each.value, partition=each.partition, offset=each.offset
        )
        if entry is not None:
            found[entry.letter] = entry
    return found
