"""The topics that members' patterns match, among those that their client may describe.

A group tries a pattern on the topics that it has not seen yet, and on all of them if the pattern is
new or rights have changed (`names_to_try`). If that takes long it is done in steps before the group
decides (`Sight.try_ahead`); the decision itself tries only names that came since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import NamedTuple

from headrace.node.coordination.group.consumer_group import ConsumerGroup
from headrace.node.coordination.patterns import WORK_PER_STEP, Pattern
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import KafkaError

FIELD = "SubscribedTopicRegex"
NO_NAMES = frozenset[str]()
# A look at the rights takes 2 to 5 us.
RIGHTS_PER_STEP = 200
# With more than this, patterns are tried between other requests.
WORK_AT_ONCE = 2 * WORK_PER_STEP


class Tried(NamedTuple):
    """The names on which a pattern was tried, and those that it matched and the client may see."""

    names: Collection[str]
    found: set[str]


NOTHING_TRIED: Mapping[str, Tried] = {}


class Sight(NamedTuple):
    """The topics that a client may describe: patterns match no others. All of them, if `sees` is
    None.

    As in Apache Kafka, a group's patterns are matched with the rights of the member whose request
    finds that topics or rights have changed; normally the members of a group have the same rights.
    """

    sees: Callable[[str], bool] | None = None
    change: int = 0  # grows when rights change
    tried: Mapping[str, Tried] = NOTHING_TRIED  # by pattern, before the decision

    def matching(self, regex: str, names: Collection[str]) -> frozenset[str]:
        """Returns the names among these that the pattern matches and the client may see."""
        before = self.tried.get(regex)
        if before is None:
            return frozenset(at_once(self._steps(regex, names)))
        new = [name for name in names if name not in before.names]
        return frozenset(before.found.intersection(names)).union(at_once(self._steps(regex, new)))

    def try_ahead(self, untried: Mapping[str, Collection[str]]) -> Generator[None, None, Sight]:
        """Returns the same sight with the results for these names; yields where other work may
        run."""
        tried: dict[str, Tried] = {}
        for regex, names in untried.items():
            found = yield from self._steps(regex, names)
            tried[regex] = Tried(names, found)
            yield
        return self._replace(tried=tried)

    def _steps(self, regex: str, names: Collection[str]) -> Generator[None, None, set[str]]:
        pattern = pattern_of(regex)
        if pattern is None:
            return set()
        matched = yield from pattern.matching(names)
        if self.sees is None:
            return matched
        found: set[str] = set()
        for count, name in enumerate(matched, 1):
            if self.sees(name):
                found.add(name)
            if count % RIGHTS_PER_STEP == 0:
                yield
        return found


EVERYTHING = Sight()


def pattern_of(regex: str) -> Pattern | None:
    """Returns None if a release that allowed larger patterns has recorded it: it matches no further
    topics."""
    try:
        return Pattern(regex, FIELD)
    except KafkaError:
        return None


def require_valid(regex: str) -> None:
    Pattern(regex, FIELD)


def unseen(group: ConsumerGroup, topics: Mapping[str, object]) -> Collection[str]:
    """Returns the names on which the group has not tried its patterns."""
    seen = group.topics_seen
    if seen is None:
        return topics
    return NO_NAMES if seen is topics else topics.keys() - seen.keys()


def names_to_try(
    group: ConsumerGroup,
    regex: str,
    topics: Mapping[str, object],
    new: Collection[str],
    change: int,
) -> Collection[str]:
    """Returns the names on which the group has to try this pattern; `new` are the unseen ones,
    `change` is that of the sight."""
    is_known = regex in group.patterns and group.sight_seen == change
    return new if is_known else topics


def long_trials(
    group: ConsumerGroup | None, regex: str | None, topics: Mapping[str, object], change: int
) -> dict[str, Collection[str]]:
    """Returns the patterns, and the names to try them on, for a heartbeat with `regex` (None: it
    has none). Empty if the decision can try them itself."""
    patterns = {regex}
    new: Collection[str] = NO_NAMES
    if group is None:
        group = ConsumerGroup("")
    else:
        new = unseen(group, topics)
        is_known = regex is None or regex in group.patterns
        if not new and is_known and group.sight_seen == change:
            return {}
        patterns |= {wish.regex for wish in group.wishes}
    found: dict[str, Collection[str]] = {}
    work = 0
    for one in filter(None, patterns):
        names = names_to_try(group, one, topics, new, change)
        pattern = pattern_of(one) if names else None
        if pattern is not None:
            found[one] = names
            work += len(names) * pattern.work_per_name
    return found if work > WORK_AT_ONCE else {}
