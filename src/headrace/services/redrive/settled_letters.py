"""Letters that were sent again or discarded, as their journal says: all, or as far as bounds go."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_pages import Bounds, Browser
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.redrive.letters import DeadLetter
from headrace.services.redrive.settled import SETTLED_TOPIC, Settled, settled_by_letter


@dataclass(slots=True)
class SettledLetters:
    by_letter: dict[str, Settled] = field(default_factory=dict)
    is_whole: bool = True  # False: a bound was reached first, so a letter may be settled after all

    def of(self, letter: DeadLetter) -> Settled | None:
        """Its entry, if it was written for this letter: a topic that was deleted and created again
        has the same offsets, with other letters."""
        entry = self.by_letter.get(letter.name)
        return entry if entry is not None and entry.parked_at_ms == letter.parked_at_ms else None


def all_settled(connection: ClientSettings) -> SettledLetters:
    if SETTLED_TOPIC not in Topics(connection).cluster.topics:
        return SettledLetters()
    with closing(RecordReader(connection, SETTLED_TOPIC)) as reader:
        return SettledLetters(settled_by_letter(reader.records()))


def settled_within(connection: ClientSettings, bounds: Bounds) -> SettledLetters:
    """For a page. Without a journal there are none."""
    if SETTLED_TOPIC not in Topics(connection).cluster.topics:
        return SettledLetters()
    with closing(Browser(connection, SETTLED_TOPIC)) as browser:
        page = browser.onwards(
            browser.beginnings(browser.partitions), want=bounds.records, bounds=bounds
        )
    return SettledLetters(settled_by_letter(seen.record for seen in page.found), page.at_the_end)
