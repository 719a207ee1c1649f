"""Questions about dead letters, each bounded; the service itself reads whole topics of them.

Settled letters are read from their journal (`headrace.dead-letters.settled`), as far as the bounds
go; a page that could not read all of it says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import NoSuchTopic
from headrace.client.lookup.record_pages import Bounds, Browser, Seen
from headrace.services.redrive.letters import DeadLetter, Selection, dead_letter, without_copies
from headrace.services.redrive.service import DeadLetters, Step
from headrace.services.redrive.settled import Settled
from headrace.services.redrive.settled_letters import settled_within
from headrace.wire.contract.companions import DEAD_SUFFIX

ON_ONE_PAGE = 25
LETTERS_ON_ONE_PAGE = 50
SAMPLED = 200  # letters of a topic, for its reasons
SETTLED_BOUNDS = Bounds(records=200_000, bytes=64 << 20, seconds=4.0)
# One action of a page; more are done with the command that it shows.
MOST_AT_ONCE = 1_000
MOST_ENTRIES = 200


@dataclass(slots=True)
class LetterTopic:
    topic: str
    letters: int  # all in the topic, also those that were already resent or discarded
    sample: list[tuple[DeadLetter, Settled | None]]  # the newest


@dataclass(slots=True)
class LetterTopics:
    topics: list[LetterTopic]
    there: int
    settled_is_whole: bool


def letter_topics(connection: ClientSettings, page: int) -> LetterTopics:
    topics = Topics(connection)
    names = [each.name for each in topics.all() if each.name.endswith(DEAD_SUFFIX)]
    shown = names[page * ON_ONE_PAGE : (page + 1) * ON_ONE_PAGE]
    spans = topics.spans(shown)
    settled = settled_within(connection, SETTLED_BOUNDS)
    bounds = Bounds(records=2_000, bytes=1 << 20, seconds=0.5)
    found = []
    for name in shown:
        count = sum(end - first for first, end in spans.get(name, {}).values())
        with closing(Browser(connection, name)) as browser:
            newest = browser.backwards(
                browser.ends(browser.partitions), want=SAMPLED, bounds=bounds
            )
        letters = [dead_letter(seen.record) for seen in newest.found]
        found.append(LetterTopic(name, count, [(each, settled.of(each)) for each in letters]))
    return LetterTopics(found, len(names), settled.is_whole)


@dataclass(slots=True)
class LetterPage:
    letters: list[tuple[DeadLetter, Settled | None]]
    next: dict[int, int]
    at_the_end: bool
    looked_at: int
    unread: dict[int, str]
    settled_is_whole: bool


def letters_of(
    connection: ClientSettings,
    topic: str,
    selection: Selection,
    also_settled: bool,
    at: dict[int, int] | None,
) -> LetterPage:
    """Returns the newest letters first."""
    require_letters(connection, topic)
    settled = settled_within(connection, SETTLED_BOUNDS)

    def accepts(seen: Seen) -> bool:
        letter = dead_letter(seen.record)
        return (
            seen.is_data
            and selection.accepts(letter)
            and (also_settled or settled.of(letter) is None)
        )

    with closing(Browser(connection, topic)) as browser:
        page = browser.backwards(
            browser.ends(browser.partitions) if at is None else at,
            want=LETTERS_ON_ONE_PAGE,
            accepts=accepts,
        )
    # Newest first: of copies, which are close together, the oldest is shown, as by the command.
    letters = list(without_copies(dead_letter(seen.record) for seen in reversed(page.found)))
    letters.reverse()
    return LetterPage(
        [(each, settled.of(each)) for each in letters],
        page.next,
        page.at_the_end,
        page.looked_at,
        page.unread,
        settled.is_whole,
    )


def require_letters(connection: ClientSettings, topic: str) -> None:
    """Raises `NoSuchTopic` if the topic is missing, is not a dead-letter topic, or may not be seen
    by this user."""
    if topic not in Topics(connection).cluster.topics:
        raise NoSuchTopic(f"There is no topic {topic}.")
    if not topic.endswith(DEAD_SUFFIX):
        raise NoSuchTopic(
            f"Topic {topic} is not a dead-letter topic: their names end in {DEAD_SUFFIX}."
        )


def one_letter(
    connection: ClientSettings, topic: str, partition: int, offset: int
) -> tuple[DeadLetter, Settled | None] | None:
    require_letters(connection, topic)
    with closing(Browser(connection, topic)) as browser:
        seen = browser.at(partition, offset)
    if seen is None:
        return None
    letter = dead_letter(seen.record)
    return letter, settled_within(connection, SETTLED_BOUNDS).of(letter)


@dataclass(slots=True)
class Dealt:
    """One entry of who did what, the newest first."""

    entries: list[Settled]
    is_whole: bool


def who_did_what(connection: ClientSettings, topic: str) -> Dealt:
    """The actions on letters of a topic."""
    settled = settled_within(connection, SETTLED_BOUNDS)
    of_topic = [
        entry
        for name, entry in settled.by_letter.items()
        if name.rpartition("/")[0].rpartition("/")[0] == topic
    ]
    newest = sorted(of_topic, key=lambda entry: -entry.at_ms)
    return Dealt(newest[:MOST_ENTRIES], settled.is_whole and len(newest) <= MOST_ENTRIES)


@dataclass(slots=True)
class Done:
    count: int
    refusals: list[str]


def redrive(
    connection: ClientSettings,
    topic: str,
    selection: Selection,
    by: str,
    reason: str,
    value: bytes | None,
) -> Done:
    """Sends letters again to the group that failed, and to no other group. `value` replaces the
    value of the letter, if there is one letter only."""
    steps = DeadLetters(connection).redrive(
        topic,
        selection,
        by=by,
        reason=reason,
        edit=None if value is None else lambda letter: value,
        limit=MOST_AT_ONCE,
    )
    return _done(steps)


def redrive_at(
    connection: ClientSettings, topic: str, selection: Selection, by: str, reason: str, rate: float
) -> Iterator[Step]:
    """Like `redrive`, but for all selected letters at a rate per second; for a thread of
    its own."""
    return DeadLetters(connection).redrive(topic, selection, by=by, reason=reason, rate=rate)


def discard(
    connection: ClientSettings, topic: str, selection: Selection, by: str, reason: str
) -> Done:
    return _done(
        DeadLetters(connection).discard(topic, selection, by=by, reason=reason, limit=MOST_AT_ONCE)
    )


def _done(steps: Iterator[Step]) -> Done:
    done = Done(0, [])
    for step in steps:
        if step.refusal:
            done.refusals.append(step.refusal)
        else:
            done.count += 1
    return done
