"""Why a group is behind, and the remedies: a finding for each cause that can be seen. Pure.

A finding is a sentence and, where there is one, the command that helps. A client's own settings and
what its handler waits for cannot be seen from outside: that settings of fetches and polls are too
small is concluded from the size of the records that wait, else only named as a possibility.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from statistics import median

from headrace.services.backlog.lag import GroupLag, PartitionLag, Place

# A smaller lag is not a backlog: these records are being processed.
NO_BACKLOG = 100
SHARE_OF_HOT_PARTITION = 0.5
SHARE_OF_HOT_KEY = 0.3
FEWEST_SAMPLED = 50
SLOW_MEMBER = 1 / 3
# The bytes that a consumer fetches from a partition at once by default (max.partition.fetch.bytes),
# and how many records of it make a good fetch.
USUAL_FETCH_BYTES = 1 << 20
FEWEST_PER_FETCH = 10


@dataclass(slots=True)
class Finding:
    cause: str  # one word for programs
    sentence: str
    command: str | None = None


@dataclass(slots=True)
class KeySample:
    """Keys of the next records of one partition."""

    place: Place
    keys: Counter[bytes | None]
    mean_bytes: int = 0  # of a record: key, value and headers

    @property
    def count(self) -> int:
        return sum(self.keys.values())


@dataclass(slots=True)
class Retrying:
    """Records of one topic that have failed and wait in the group's retry topic."""

    topic: str
    retry_topic: str
    waiting: int  # offsets, an upper bound for records
    attempts: int  # how many attempts the first of them has had


def diagnosed(
    lag: GroupLag, samples: Sequence[KeySample] = (), retrying: Sequence[Retrying] = ()
) -> list[Finding]:
    """Returns findings, the most telling one first; without a backlog only those that do not depend
    on it."""
    failing = _failing(lag, retrying)
    if lag.lag < NO_BACKLOG:
        return [*_nowhere(lag), *failing]
    if not lag.members:
        return [_nobody(lag), *failing]
    found = [
        *_rebalancing(lag),
        *_nowhere(lag),
        *_stuck(lag),
        *failing,
        *_large_records(samples),
        *_hot_partitions(lag),
        *_hot_keys(lag, samples),
        *_slow_members(lag),
        *_idle_members(lag),
        *_few_members(lag),
    ]
    return found or _evenly_slow(lag)


def _nobody(lag: GroupLag) -> Finding:
    return Finding(
        "no-members", f"No active members: group {lag.group} is not running. Start its consumers."
    )


def _nowhere(lag: GroupLag) -> list[Finding]:
    """Finds partitions that a member reads and for which the group has committed nothing: how far
    the group is there is unknown."""
    count = len(lag.unknown)
    if not count:
        return []
    return [
        Finding(
            "nothing-committed",
            f"In {count} of {len(lag.partitions)} partitions the group has committed nothing yet: "
            "how far it is behind there is not known.",
            _members(lag),
        )
    ]


def _failing(lag: GroupLag, retrying: Sequence[Retrying]) -> list[Finding]:
    return [
        Finding(
            "failing",
            f"Records of {each.topic} fail: up to {each.waiting:,} wait in {each.retry_topic} for "
            f"another try, the first of them after {each.attempts:,} attempts. What is behind them "
            "in the order of its key waits as well.",
            f"headrace consume {quote(each.retry_topic)} --count 1 --pretty --headers",
        )
        for each in retrying
        if each.waiting and each.attempts
    ]


def _large_records(samples: Sequence[KeySample]) -> list[Finding]:
    large = [
        each
        for each in samples
        if each.count and each.mean_bytes * FEWEST_PER_FETCH > USUAL_FETCH_BYTES
    ]
    if not large:
        return []
    worst = max(large, key=lambda each: each.mean_bytes)
    fit = USUAL_FETCH_BYTES // worst.mean_bytes
    return [
        Finding(
            "small-fetches",
            f"The next records of {worst.place[0]}-{worst.place[1]} have "
            f"{worst.mean_bytes / 1000:,.0f} kB each: a fetch holds {max(1, fit)} of them with "
            "max.partition.fetch.bytes as it is unless set (1 MiB). Raise it, and fetch.max.bytes.",
        )
    ]


def _rebalancing(lag: GroupLag) -> list[Finding]:
    if lag.state == "Stable":
        return []
    return [
        Finding(
            "rebalancing",
            f"The group is {lag.state}, not Stable, and reads nothing until it is. If that lasts, "
            "members come and go, or one needs longer than max.poll.interval.ms for its records.",
            _members(lag),
        )
    ]


def _stuck(lag: GroupLag) -> list[Finding]:
    """Finds partitions that have an owner and do not move, while others do."""
    if lag.rate_out == 0:
        return [
            Finding(
                "stands-still",
                "No partition has moved while we looked. A handler may hang, a record may fail "
                "again and again, or commits are rare.",
                f"headrace dead-letters list; {_members(lag)}",
            )
        ]
    return [
        Finding(
            "stuck",
            f"{one.topic}-{one.partition} makes no progress at offset {one.committed} while others "
            "move: the record there may be poison, or its handler hangs.",
            f"headrace consume {quote(one.topic)} --partition {one.partition} "
            f"--from {one.committed} -n 1",
        )
        for one in lag.partitions
        if one.lag >= NO_BACKLOG and one.member is not None and one.rate_out == 0
    ]


def _hot_partitions(lag: GroupLag) -> list[Finding]:
    found = []
    for topic, partitions in _by_topic(lag).items():
        whole = sum(one.lag for one in partitions)
        hottest = max(partitions, key=lambda one: one.lag)
        if len(partitions) < 3 or whole < NO_BACKLOG:
            continue
        share = hottest.lag / whole
        if share >= SHARE_OF_HOT_PARTITION and hottest.rate_out > 0:
            found.append(
                Finding(
                    "hot-partition",
                    f"{share:.0%} of the backlog of {topic} is in partition {hottest.partition} "
                    "alone: more consumers do not help there.",
                )
            )
    return found


def _hot_keys(lag: GroupLag, samples: Sequence[KeySample]) -> list[Finding]:
    found = []
    for sample in samples:
        count = sample.count
        if count < FEWEST_SAMPLED:
            continue
        key, times = sample.keys.most_common(1)[0]
        if times / count >= SHARE_OF_HOT_KEY and key is not None and len(sample.keys) > 1:
            shown = key[:60].decode("utf-8", "replace")
            found.append(
                Finding(
                    "hot-key",
                    f"{times / count:.0%} of the next {count:,} records of {sample.place[0]}-"
                    f"{sample.place[1]} have the key {shown}: they are handled one after the "
                    "other, however many consumers you add. Spread the key, or handle it quicker.",
                )
            )
    return found


def _slow_members(lag: GroupLag) -> list[Finding]:
    rates = _rates_of_members(lag)
    busy = {m: r for m, (r, behind) in rates.items() if behind}
    if len(rates) < 2:
        return []
    found = []
    for member, rate in busy.items():
        others = [r for other, (r, _) in rates.items() if other != member]
        if others and median(others) > 0 and rate < SLOW_MEMBER * median(others):
            found.append(
                Finding(
                    "slow-member",
                    f"Member {member} reads {rate:,.0f} records/s, the others "
                    f"{median(others):,.0f}: look at its machine.",
                    _members(lag),
                )
            )
    return found


def _rates_of_members(lag: GroupLag) -> Mapping[str, tuple[float, bool]]:
    """Records per second of each member that has partitions, and whether it is behind."""
    found: dict[str, tuple[float, bool]] = {}
    for one in lag.partitions:
        if one.member is not None:
            rate, behind = found.get(one.member, (0.0, False))
            found[one.member] = (rate + one.rate_out, behind or one.lag >= NO_BACKLOG)
    return found


def _idle_members(lag: GroupLag) -> list[Finding]:
    idle = sum(not places for places in lag.members.values())
    if not idle:
        return []
    return [
        Finding(
            "idle-members",
            f"{idle} of {len(lag.members)} members have no partition: there are more members than "
            "partitions. More partitions give them work.",
            _more_partitions(lag, len(lag.members)),
        )
    ]


def _few_members(lag: GroupLag) -> list[Finding]:
    count = len({one.place for one in lag.partitions if one.member is not None})
    working = sum(bool(places) for places in lag.members.values())
    if working >= count:
        return []
    return [
        Finding(
            "few-members",
            f"{working} members share {count} partitions: up to {count - working} more can help.",
        )
    ]


def _evenly_slow(lag: GroupLag) -> list[Finding]:
    """Each partition has a member, and all members read at the same rate: so the handling
    is slow."""
    if lag.caught_up_in_s is not None:
        return [Finding("catching-up", "Every partition is catching up: nothing needs to be done.")]
    return [
        Finding(
            "evenly-slow",
            "All members read alike, and slower than records come: each record takes too long. "
            "Handle more at once (concurrency= of an app, larger batches: max.poll.records, "
            "fetch.min.bytes), or drain it through more partitions.",
            _wider(lag),
        )
    ]


def _more_partitions(lag: GroupLag, count: int) -> str | None:
    topic = _largest(lag)
    if topic is None:
        return None
    return f"headrace backlog add-partitions {quote(topic)} --to {count}"


def _largest(lag: GroupLag) -> str | None:
    """The topic with the largest backlog."""
    topics = _by_topic(lag)
    if not topics:
        return None
    return max(topics, key=lambda name: sum(one.lag for one in topics[name]))


def _wider(lag: GroupLag) -> str | None:
    topic = _largest(lag)
    if topic is None:
        return None
    return f"headrace backlog widen {quote(topic)} --group {quote(lag.group)}"


def _members(lag: GroupLag) -> str:
    return f"headrace groups describe {quote(lag.group)} --members"


def _by_topic(lag: GroupLag) -> dict[str, list[PartitionLag]]:
    topics: dict[str, list[PartitionLag]] = {}
    for one in lag.partitions:
        topics.setdefault(one.topic, []).append(one)
    return topics
