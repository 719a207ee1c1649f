"""What must be true of delayed messages, judged by the topics alone.

The intake says what was asked for, the target (read_committed) what was delivered, the outcomes
what became of cancels. Each rule names the records that break it: early, lost, doubled, changed,
invented, out of order, a cancel whose answer is not what happened.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import confluent_kafka
from confluent_kafka import TopicPartition

from headrace.client.consumer.fetched import headers_of
from headrace.wire.contract import delay_topics, durations, headers

READ_WITHIN_S = 600.0
# Records that waited at least so long must come in the order of their due times. The service holds
# deliveries back while it has more to read, so this is only for the moment that a record is on its
# way to a service that believes to be at the end.
SURELY_READ_MS = 1_000
MOST_NAMED = 5


@dataclass(slots=True)
class Taken:
    """A record of a topic, in short."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    def text(self, header: str) -> str | None:
        value = self.headers.get(header)
        return None if value is None else value.decode()

    @property
    def due_ms(self) -> int:
        """When a record of the intake wants to be delivered."""
        if (at := self.text(headers.DELIVER_AT)) is not None:
            return int(at)
        if (delay := self.text(headers.DELAY)) is not None:
            return self.timestamp + durations.parse(delay)
        return self.timestamp


@dataclass(slots=True)
class Verdict:
    """How much was seen, and what was wrong: the rule, how often, the first examples."""

    asked: int = 0
    delivered: int = 0
    cancelled: int = 0
    too_late: int = 0
    replaced: int = 0
    largest_lateness_ms: int = 0
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def blame(self, rule: str, what: object) -> None:
        self.wrong[rule].append(str(what))

    def told(self) -> str:
        return "\n".join(
            f"{rule}: {len(cases)}, such as {cases[:MOST_NAMED]}"
            for rule, cases in self.wrong.items()
        )


def check(bootstrap: str, target: str) -> Verdict:
    """Everything of one target; nothing is pending any more."""
    # The target first: what is delivered meanwhile would look invented the other way round.
    deliveries = list(read(bootstrap, target))
    return judge(
        delay_topics.companion_of(target),
        intake=list(read(bootstrap, delay_topics.companion_of(target))),
        deliveries=deliveries,
        outcomes=list(read(bootstrap, delay_topics.outcomes_of(target))),
        rejected=list(read(bootstrap, delay_topics.rejected_of(target))),
    )


def judge(
    companion: str,
    intake: list[Taken],
    deliveries: list[Taken],
    outcomes: list[Taken],
    rejected: list[Taken],
) -> Verdict:
    asked = {(one.partition, one.offset): one for one in intake}
    verdict = Verdict(asked=len(asked), delivered=len(deliveries))
    by_source = _by_source(deliveries, companion, asked, verdict)
    _check_each(by_source, asked, verdict)
    _check_order(by_source, asked, verdict)
    _check_chains(asked, by_source, _answers(outcomes, companion, asked, verdict), verdict)
    for one in rejected:
        verdict.blame("rejected", f"{one.value!r}: {one.text(headers.REJECTED_REASON)}")
    return verdict


Place = tuple[int, int]  # partition and offset in the intake


def _source(one: Taken, companion: str) -> Place | None:
    topic, partition, offset = (one.text(headers.SOURCE) or "//").rsplit("/", 2)
    return (int(partition), int(offset)) if topic == companion else None


def _by_source(
    deliveries: list[Taken], companion: str, intake: dict[Place, Taken], verdict: Verdict
) -> dict[Place, Taken]:
    found: dict[Place, Taken] = {}
    for one in deliveries:
        place = _source(one, companion)
        if place is None or place not in intake:
            verdict.blame("invented", f"{one.value!r} from {place}")
        elif place in found:
            verdict.blame("doubled", f"{place} at {one.offset} and {found[place].offset}")
        else:
            found[place] = one
    return found


def _check_each(
    by_source: dict[Place, Taken], intake: dict[Place, Taken], verdict: Verdict
) -> None:
    for place, one in by_source.items():
        asked = intake[place]
        lateness = one.timestamp - asked.due_ms
        if lateness < 0:
            verdict.blame("early", f"{place} by {-lateness} ms")
        verdict.largest_lateness_ms = max(verdict.largest_lateness_ms, lateness)
        if one.text(headers.DUE_AT) != str(asked.due_ms):
            verdict.blame("due time", f"{one.text(headers.DUE_AT)}, asked for {asked.due_ms}")
        kept = {n: v for n, v in asked.headers.items() if n not in headers.NOT_HANDED_ON}
        handed_on = {n: v for n, v in one.headers.items() if n not in headers.NOT_HANDED_ON}
        if (one.key, one.value, one.partition, handed_on) != (
            asked.key,
            asked.value,
            asked.partition,
            kept,
        ):
            verdict.blame("changed", f"{asked} became {one}")


def _check_order(
    by_source: dict[Place, Taken], intake: dict[Place, Taken], verdict: Verdict
) -> None:
    """By due time and then by arrival, within each partition of the target."""
    lines: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for place, one in by_source.items():
        asked = intake[place]
        if asked.due_ms - asked.timestamp >= SURELY_READ_MS:
            lines[one.partition].append((one.offset, asked.due_ms, asked.offset))
    for line in lines.values():
        line.sort()
        for before, after in itertools.pairwise(line):
            if before[1:] > after[1:]:
                verdict.blame("out of order", f"{before} before {after}")


def _answers(
    outcomes: list[Taken], companion: str, intake: dict[Place, Taken], verdict: Verdict
) -> dict[Place, str]:
    """The answer to each cancel, by the cancel's place."""
    found: dict[Place, str] = {}
    for one in outcomes:
        place = _source(one, companion)
        if place is None or place not in intake:
            verdict.blame("invented answer", f"{one}")
        elif place in found:
            verdict.blame("answered twice", f"{place}")
        else:
            found[place] = one.text(headers.OUTCOME) or ""
    return found


def _check_chains(
    intake: dict[Place, Taken],
    by_source: dict[Place, Taken],
    answers: dict[Place, str],
    verdict: Verdict,
) -> None:
    """Plain records come once; of one id's records, what a later one allows."""
    chains: dict[tuple[int, str], list[Place]] = defaultdict(list)
    for place in sorted(intake):
        one = intake[place]
        name = one.text(headers.ID) or one.text(headers.CANCEL)
        if name is None:
            if place not in by_source:
                verdict.blame("lost", place)
        else:
            chains[place[0], name].append(place)
    for (_, name), places in chains.items():
        _check_chain(name, places, intake, by_source, answers, verdict)


def _check_chain(
    name: str,
    places: list[Place],
    intake: dict[Place, Taken],
    by_source: dict[Place, Taken],
    answers: dict[Place, str],
    verdict: Verdict,
) -> None:
    for place, after in zip(places, [*places[1:], None], strict=True):
        one, came = intake[place], place in by_source
        if headers.CANCEL in one.headers:
            if place not in answers:
                verdict.blame("cancel without an answer", f"{name} at {place}")
            continue
        if came:
            wanted = f"{name}@{one.due_ms}"
            if by_source[place].text(headers.MESSAGE_ID) != wanted:
                verdict.blame("message id", f"{by_source[place].headers}, not {wanted}")
        if after is None:
            if not came:
                verdict.blame("lost", f"{name} at {place}")
        elif headers.CANCEL in intake[after].headers:
            _check_cancel(name, came, answers.get(after), verdict)
        else:
            verdict.replaced += not came


def _check_cancel(name: str, came: bool, answer: str | None, verdict: Verdict) -> None:
    if answer == headers.CANCELLED:
        verdict.cancelled += 1
    elif answer == headers.TOO_LATE:
        verdict.too_late += 1
    if answer != (headers.TOO_LATE if came else headers.CANCELLED):
        happened = "delivered" if came else "not delivered"
        verdict.blame("wrong answer", f"{name}: {answer}, but it was {happened}")


# ---- reading ------------------------------------------------------------------------------------


def read(bootstrap: str, topic: str) -> Iterator[Taken]:
    """All records of a topic, as a read_committed consumer sees them; none if it does not exist."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-by-assignment",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        about = consumer.list_topics(topic, timeout=30).topics[topic]
        if about.error is not None:
            return
        unread = set(about.partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        deadline = time.monotonic() + READ_WITHIN_S
        while unread:
            assert time.monotonic() < deadline, f"the end of {topic} did not come"
            first = consumer.poll(0.5)
            for message in [first, *consumer.consume(10_000, 0)] if first is not None else []:
                if message.error() is None:
                    yield _taken(message)
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
    finally:
        consumer.close()


def _taken(message: confluent_kafka.Message) -> Taken:
    return Taken(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        dict(headers_of(message)),
    )
