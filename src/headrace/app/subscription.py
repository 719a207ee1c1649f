"""One `@app.on(...)`: its topics, its handler, and how records are handled.

Options that contradict each other are refused here, when the program starts, with a sentence that
says what to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.app.attempts.handler import Plan
from headrace.app.decoding import Codec
from headrace.app.dispatch.lanes import OrderBy
from headrace.app.observation.observer import Stats
from headrace.app.once.memory import Once
from headrace.app.retry import Retry
from headrace.app.shadow import Shadow

# Waits up to this long are kept in memory: the delay service would add as much again.
SHORT_WAIT_MS = 2_000
MOST_CONCURRENT = 10_000


@dataclass(slots=True)
class Subscription:
    topics: tuple[str, ...]  # names; one that begins with ^ is a regular expression
    plan: Plan
    retry: Retry = field(default_factory=Retry)
    order_by: OrderBy = None
    concurrency: int = 1
    batch: int | None = None  # at most so many records per call
    batch_wait_ms: int = 0  # how long an incomplete batch may wait for more
    queue: bool = False  # a share group: each record goes to one of many workers
    exactly_once: bool = False
    once: Once | None = None
    publish: str | None = None  # the topic for what the handler returns or yields
    codec: Codec | None = None
    dead_letters: bool = True
    confirm: bool = False  # confirm to the message's outbox that it has had its effect
    replay_safe: bool = False  # running it again over old records is harmless
    shadow: Shadow | None = None  # where results go instead, while the app is a shadow
    # Wide topics that are read instead of a topic while its backlog is widened -> that topic.
    drained: dict[str, str] = field(default_factory=dict)
    stats: Stats = field(default_factory=Stats)

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def needs_delay_service(self) -> bool:
        """Whether records without order may have to wait for longer than they are kept in
        memory."""
        if self.queue or self.order_by is not None:
            return False
        return self.retry.longest_wait_ms > SHORT_WAIT_MS

    @property
    def blocks_keys(self) -> bool:
        """Whether waiting records are in the retry topic, in the order of their keys."""
        return self.order_by == "key"

    @property
    def counts_once(self) -> bool:
        """Whether handling a record twice would break a promise."""
        return self.exactly_once or self.once is not None

    def matches(self, topic: str) -> bool:
        return any(
            re.match(given, topic) is not None if given.startswith("^") else given == topic
            for given in self.topics
        )


def checked(subscription: Subscription) -> Subscription:
    """The same, or ValueError with what to change."""
    for refused, why in _rules(subscription):
        if refused:
            raise ValueError(f"{subscription.name}: {why}")
    once = subscription.once
    if once is not None:
        why_not = once.refusal(asynchronous=subscription.plan.asynchronous)
        if why_not is not None:
            raise ValueError(f"{subscription.name}: {why_not}")
    return subscription


def _rules(s: Subscription) -> list[tuple[bool, str]]:
    return [
        (not s.topics, "name a topic."),
        (s.order_by not in (None, "key", "partition"), 'order_by is "key", "partition" or None.'),
        (
            not 1 <= s.concurrency <= MOST_CONCURRENT,
            f"concurrency is between 1 and {MOST_CONCURRENT}.",
        ),
        (
            s.queue and s.order_by is not None,
            "a queue keeps no order; leave order_by= away, or leave queue= away.",
        ),
        (
            s.queue and s.exactly_once,
            "a queue has no offsets to write in a transaction; use once= instead of exactly_once.",
        ),
        (
            s.queue and any(topic.startswith("^") for topic in s.topics),
            "a queue names its topics; share groups take no regular expressions.",
        ),
        (
            s.queue and bool(s.drained),
            "a queue needs no wide topic: more workers read it as it is.",
        ),
        (
            s.exactly_once and s.concurrency > 1,
            "exactly_once takes records one after the other; set concurrency=1 or use once=.",
        ),
        (
            s.exactly_once and s.order_by == "key",
            'exactly_once keeps the order of partitions; leave order_by="key" away or use once=.',
        ),
        (
            s.exactly_once and s.once is not None,
            "exactly_once is about topics and once= about a store; choose one.",
        ),
        (
            s.exactly_once and s.batch is not None,
            "exactly_once makes its own batches, one transaction each; leave batch= away.",
        ),
        (s.batch is not None and s.batch < 1, "batch is at least 1."),
        (s.batch is None and s.plan.batch, "it takes a list; say batch= how many at most."),
        (
            s.batch is not None and s.order_by == "key",
            'a batch mixes keys; use order_by="partition" or None with batch=.',
        ),
        (
            s.batch is not None and s.once is not None,
            "once= remembers single messages; leave batch= away.",
        ),
        (
            s.batch is not None and s.confirm,
            "confirm= is about single messages; leave batch= away.",
        ),
        (
            s.plan.wants_db and s.once is None,
            "it asks for db, which comes from once=; give once=Sql(engine).",
        ),
    ]
