"""Topics: the rows of the list, and one topic with its partitions and readers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.admin.group_lags import GroupLag
from headrace.client.admin.topics import Setting
from headrace.console.access.topics import TopicFacts, TopicList
from headrace.console.views.groups import state_in_words
from headrace.wire.contract import durations
from headrace.wire.contract.companions import DEAD_SUFFIX

FOREVER = "-1"


@dataclass(slots=True)
class TopicRow:
    name: str
    partitions: int
    replication: int
    messages: int | None  # None: not all leaders answered
    size_bytes: int | None
    marks: list[str]
    companions: int
    per_s: float | None = None  # messages in; None: not sampled yet
    groups: int | None = None  # that have committed there; None: not sampled, or not for everybody
    lag: int | None = None  # of the one that is furthest behind


def topic_rows(
    found: TopicList,
    per_s: Mapping[str, float] | None = None,
    lags: Mapping[str, GroupLag] | None = None,
) -> list[TopicRow]:
    """`per_s` and `lags` are the sampler's."""
    rows = []
    by_topic = _lags_by_topic(lags or {}, {topic.name for topic in found.topics})
    for topic in found.topics:
        spans = found.spans.get(topic.name, {})
        sizes = [size for (name, _), size in found.sizes.items() if name == topic.name]
        beside = found.companions[topic.name]
        rows.append(
            TopicRow(
                topic.name,
                topic.partitions,
                topic.replication,
                sum(end - first for first, end in spans.values())
                if len(spans) == topic.partitions
                else None,
                sum(sizes) if sizes else None,
                marks(beside, internal=topic.internal),
                len(beside),
                (per_s or {}).get(topic.name),
                None if lags is None else len(by_topic.get(topic.name, ())),
                max(by_topic.get(topic.name, ()), default=None),
            )
        )
    return rows


def _lags_by_topic(lags: Mapping[str, GroupLag], names: set[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for group in lags.values():
        for topic, lag in group.topics.items():
            if topic in names:
                found.setdefault(topic, []).append(lag.lag)
    return found


def marks(companions: list[str], *, internal: bool) -> list[str]:
    """The special features of a topic, from the suffixes of its companions' names."""
    found = ["internal"] if internal else []
    if ".delay" in companions:
        found.append("delayed")
    if any(end.endswith(DEAD_SUFFIX) for end in companions):
        found.append("dead letters")
    return found


@dataclass(slots=True)
class PartitionRow:
    partition: int
    leader: int | None
    replicas: str
    in_sync: str
    is_short: bool  # of replicas
    first: int | None
    end: int | None
    messages: int | None
    size_bytes: int | None


@dataclass(slots=True)
class ReaderRow:
    group: str
    state: str
    members: int | None  # None: not asked
    lag: int | None  # None: it has committed nothing


@dataclass(slots=True)
class TopicPage:
    name: str
    id: str
    partitions: list[PartitionRow]
    messages: int
    size_bytes: int | None
    replication: int
    kept: str  # retention in words
    own_settings: dict[str, str]
    readers: list[ReaderRow]
    readers_missing: str
    groups_not_asked: int
    companions: list[str]
    is_delayed: bool
    is_internal: bool


def topic_page(facts: TopicFacts) -> TopicPage:
    topic = facts.topic
    rows = [
        PartitionRow(
            each.partition,
            each.leader,
            ", ".join(map(str, each.replicas)),
            ", ".join(map(str, each.isr)),
            len(each.isr) < len(each.replicas),
            each.start_offset,
            each.end_offset,
            None
            if each.start_offset is None or each.end_offset is None
            else each.end_offset - each.start_offset,
            facts.sizes.get((topic.name, each.partition)),
        )
        for each in topic.partitions
    ]
    looked = facts.readers.answer
    return TopicPage(
        topic.name,
        topic.id,
        rows,
        sum(row.messages or 0 for row in rows),
        sum(facts.sizes.values()) if facts.sizes else None,
        topic.replication,
        kept_in_words(topic.settings),
        topic.own_settings(),
        [
            ReaderRow(
                group.group,
                state_in_words(group.state),
                None if group.members is None else len(group.members),
                group.lag.topics[topic.name].lag
                if group.lag is not None and topic.name in group.lag.topics
                else None,
            )
            for group in (looked.groups if looked else [])
        ],
        facts.readers.missing,
        looked.not_asked if looked else 0,
        facts.companions,
        facts.is_delayed,
        topic.internal,
    )


def kept_in_words(settings: dict[str, Setting]) -> str:
    """`for 7 days`, `the last message of each key`, `for ever`."""
    policy = _value(settings, "cleanup.policy", "delete").split(",")
    words = ["the last message of each key"] if "compact" in policy else []
    if "delete" in policy:
        kept_ms, kept_bytes = (
            _value(settings, "retention.ms", FOREVER),
            _value(settings, "retention.bytes", FOREVER),
        )
        words.append("for ever" if kept_ms == FOREVER else f"for {length_in_words(int(kept_ms))}")
        if kept_bytes != FOREVER:
            words.append(f"at most {kept_bytes} bytes per partition")
    return ", ".join(words)


def length_in_words(length_ms: int) -> str:
    for unit, word in (("d", "day"), ("h", "hour"), ("m", "minute"), ("s", "second")):
        whole, rest = divmod(length_ms, durations.UNITS_MS[unit])
        if whole and not rest:
            return f"{whole} {word}{'' if whole == 1 else 's'}"
    return f"{length_ms} ms"


def _value(settings: dict[str, Setting], name: str, default: str) -> str:
    found = settings.get(name)
    return default if found is None or not found.value else found.value


@dataclass(slots=True)
class SettingRow:
    name: str
    value: str
    source: str
    words: str


def setting_rows(
    settings: dict[str, Setting], words: dict[str, str], contains: str
) -> list[SettingRow]:
    """The entries of this topic first, then by name."""
    rows = [
        SettingRow(name, found.value, found.source, words.get(name, ""))
        for name, found in settings.items()
        if contains.lower() in f"{name} {words.get(name, '')}".lower()
    ]
    return sorted(rows, key=lambda row: (row.source != "topic", row.name))
