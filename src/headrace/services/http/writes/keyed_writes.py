"""Requests with an `Idempotency-Key`: written once, through any number of servers, across kills.

A key's hash chooses one of sixteen slots; `key_slot.py` has the order of steps that makes it once.
The keys of a user are in a topic of that user's own, so that no user can use up or forge another
one's keys: `headrace-http-keys`, and with logins `headrace-http-keys.USER`. The broker deletes them
after 25 hours, and the server counts them for 24.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence

from headrace.client.admin.own_topics import OwnTopic, WrongTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.services.http.limits import HttpLimits
from headrace.services.http.questions import Questions
from headrace.services.http.refusal import AWAY, TOO_LARGE, Refusal
from headrace.services.http.users.user_access import UserAccess
from headrace.services.http.writes.idempotency_window import digest_of, fingerprint, slot_of
from headrace.services.http.writes.key_slot import Answered, Keyed, KeySlot
from headrace.services.http.writes.own_topic import KEYS_TOPIC, refuse_own_topic
from headrace.services.http.writes.writes import Write
from headrace.wire.contract.delay_topics import STAMPED_BY_THE_BROKER

# Fixed for ever: with another number a key would be looked for in another place.
SLOTS = 16
IDLE_S = 30.0
MOST_RECORDS = 1000  # under one key; their places are kept for a day
HOUR_MS = 3_600_000
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,200}")


def topic_of(user: str) -> str:
    if not user:
        return KEYS_TOPIC
    if _LEGAL.fullmatch(user):
        return f"{KEYS_TOPIC}.{user}"
    return f"{KEYS_TOPIC}.sha256-{hashlib.sha256(user.encode()).hexdigest()[:32]}"


def settings_of(limits: HttpLimits) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(limits.key_s * 1000 + HOUR_MS),
        "segment.ms": str(HOUR_MS),
        **STAMPED_BY_THE_BROKER,
    }


class KeyedWrites:
    """The keyed writes of one user."""

    def __init__(self, user: UserAccess, limits: HttpLimits, questions: Questions) -> None:
        self._user, self._limits, self._questions = user, limits, questions
        self.topic = topic_of(user.name)
        self._has_topic = False
        self._slots: dict[int, KeySlot] = {}

    async def write(self, key: str, topic: str, writes: Sequence[Write]) -> Answered:
        if len(writes) > MOST_RECORDS:
            raise Refusal(TOO_LARGE, f"At most {MOST_RECORDS} records have one Idempotency-Key.")
        refuse_own_topic(topic)
        digest = digest_of(key)
        if not self._has_topic:
            await self._user.ask_topics(self._require_topic)
            self._has_topic = True
        request = Keyed(digest, topic, list(writes), fingerprint(topic, writes))
        return await self._slot(slot_of(digest, SLOTS)).write(request)

    def _require_topic(self, topics: Topics) -> None:
        own = OwnTopic(self.topic, SLOTS, settings_of(self._limits), is_exact=True)
        try:
            ensure_own(topics, own)
        except WrongTopic as wrong:
            raise Refusal(AWAY, str(wrong)) from wrong

    def _slot(self, index: int) -> KeySlot:
        if index not in self._slots:
            self._slots[index] = KeySlot(
                self._user.connection,
                self.topic,
                index,
                self._limits,
                self._questions,
                most=self._limits.keys // SLOTS,
            )
        return self._slots[index]

    @property
    def keys(self) -> int:
        return sum(len(slot.window) for slot in self._slots.values())

    @property
    def fenced(self) -> int:
        return sum(slot.fenced for slot in self._slots.values())

    async def sweep(self) -> None:
        """Closes the producers of unused slots; a slot remembers how far it has read."""
        oldest_s = time.monotonic() - IDLE_S
        for slot in self._slots.values():
            if slot.used_s < oldest_s and not slot.is_busy:
                await slot.close()

    async def close(self) -> None:
        for slot in self._slots.values():
            await slot.close()
