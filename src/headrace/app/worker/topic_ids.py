"""The topic id of a name: a topic that is deleted and created again gets another id.

Neither librdkafka nor the classic group protocol reports this to a member: it would go on at its
old offset in the new topic and skip the records before it. So the ids of all assigned topics are
asked for when partitions come, and again every few seconds, without waiting for the answer; the ids
of topics whose records wait for the answer (`arrivals.py`) are asked for at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from headrace.client.admin.requests import Pending, Requests, TopicIdentity
from headrace.client.faults import NOT_AUTHORIZED, Fault, codes

log = logging.getLogger("headrace.app")

LOOK_EVERY_S = 2.0
QUESTION_S = 2.0
# A broker may learn of a new topic a moment after others; a deleted one is not waited for.
PATIENCE_S = 5.0
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the zero id: of clusters before Kafka 2.8
NOT_THERE = codes("UNKNOWN_TOPIC_OR_PART", NOT_AUTHORIZED)

Answers = dict[str, Pending[TopicIdentity]]


class TopicIds:
    """The ids of the topics whose partitions a worker has. Called on the polling thread only."""

    def __init__(
        self, requests: Requests, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests = requests
        self._monotonic = monotonic
        self._known: dict[str, str | None] = {}
        # Another broker may still answer with the old id: an id that was replaced never counts
        # again.
        self._replaced: set[str] = set()
        self._asked: Answers = {}  # question number `next_question - 1`, until it is answered
        self._look_at = 0.0
        self.next_question = 1  # questions are numbered in the order in which they are asked
        self._answered: dict[str, int] = {}

    def of(self, topic: str) -> str | None:
        """The topic's id; None if the cluster has no topic ids, or has not answered."""
        return self._known.get(topic)

    def learn(self, topics: Collection[str], asked: Callable[[Callable[[], Any]], Any]) -> None:
        """Ask and wait; `asked` repeats a question until the cluster answers."""
        give_up_at = self._monotonic() + PATIENCE_S

        def question() -> None:
            answers = self._ask(topics)
            for topic, answer in answers.items():
                try:
                    self._known[topic] = _id(answer.result())
                except Fault as fault:
                    waits = self._monotonic() < give_up_at
                    if waits or fault.code not in NOT_THERE:
                        raise
                    log.warning("%s has no id yet: %s", topic, fault)
                    self._known[topic] = None

        if topics:
            asked(question)

    @property
    def is_due(self) -> bool:
        """Whether `look` has something to do: it is called in every turn of the polling thread."""
        return bool(self._asked) or self._monotonic() >= self._look_at

    def answered(self, topic: str) -> int:
        """The number of the last question that was answered with the known id; 0 for none."""
        return self._answered.get(topic, 0)

    def look(self, topics: Collection[str], at_once: Collection[str] = ()) -> dict[str, int]:
        """The topics that were created again, each with its present number of partitions. Never
        waits. The ids of the topics in `at_once` are asked for now.
        """
        changed = self._heard(topics) if self._asked and self._all_answered() else {}
        now = self._monotonic()
        if self._asked:
            return changed
        if now >= self._look_at:
            self._look_at, at_once = now + LOOK_EVERY_S, topics
        if at_once:
            self.next_question += 1
            self._asked = self._ask(at_once)
        return changed

    def _all_answered(self) -> bool:
        return all(answer.is_done for answer in self._asked.values())

    def _heard(self, topics: Collection[str]) -> dict[str, int]:
        asked, self._asked = self._asked, {}
        changed = {}
        for topic, answer in asked.items():
            try:
                found = answer.result()
            except Fault:
                continue  # deleted, or a broker is away: the group or the next call shows it
            if topic not in topics:
                continue
            told, before = _id(found), self._known.get(topic)
            if told == before:
                self._answered[topic] = self.next_question - 1
            if told is None or told == before or told in self._replaced:
                continue
            self._known[topic] = told
            if before is not None:
                self._replaced.add(before)
                changed[topic] = found.partitions
        return changed

    def _ask(self, topics: Collection[str]) -> Answers:
        return self._requests.identities(topics, QUESTION_S)


def _id(found: TopicIdentity) -> str | None:
    return None if found.id == NO_ID else found.id
