"""Topics of our own services: made right, repaired, or refused with a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.client.admin.own_topics import OwnTopic, WrongTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.services.http.refusal import Refusal
from headrace.services.http.writes.own_topic import refuse_own_topic

KEYS = OwnTopic("keys", 16, {"cleanup.policy": "delete", "retention.ms": "5"}, is_exact=True)
JOURNAL = OwnTopic("journal", 1, {"cleanup.policy": "compact,delete"})


@dataclass
class FakeTopics:
    """A cluster's topics by name: partitions and settings."""

    known: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    forbids: bool = False
    connection: Any = field(default_factory=lambda: SimpleNamespace(timeout_s=1.0))

    def ensure(self, name: str, *, partitions: int, settings: dict[str, str]) -> None:
        self.known.setdefault(name, (partitions, dict(settings)))

    def all(self) -> list[Any]:
        return [SimpleNamespace(name=n, partitions=p) for n, (p, _) in self.known.items()]

    def grow(self, name: str, *, partitions: int) -> None:
        self.known[name] = partitions, self.known[name][1]

    def may_see_settings(self, name: str) -> bool:
        return not self.forbids

    def settings_of(self, name: str) -> dict[str, Any]:
        assert not self.forbids, "a refusal would be an entry in the audit log"
        return {key: SimpleNamespace(value=value) for key, value in self.known[name][1].items()}

    def change_settings(self, name: str, *, to: dict[str, str]) -> None:
        self.known[name][1].update(to)


def ensured(own: OwnTopic, **known: tuple[int, dict[str, str]]) -> tuple[int, dict[str, str]]:
    topics = FakeTopics(dict(known))
    ensure_own(cast(Topics, topics), own)
    return topics.known[own.name]


def test_a_topic_that_is_missing_is_made_as_it_must_be() -> None:
    assert ensured(KEYS) == (16, KEYS.settings)


def test_a_topic_that_a_user_made_with_one_partition_gets_the_others() -> None:
    """A POST to the topic before its first use made every idempotency key 503 from then on."""
    assert ensured(KEYS, keys=(1, dict(KEYS.settings))) == (16, KEYS.settings)


def test_a_topic_with_too_many_partitions_is_refused_with_a_sentence() -> None:
    with pytest.raises(WrongTopic, match="has 17 partitions and must have 16: .* Delete it"):
        ensured(KEYS, keys=(17, dict(KEYS.settings)))


def test_the_number_stays_where_records_were_written_by_it() -> None:
    assert ensured(JOURNAL, journal=(3, dict(JOURNAL.settings)))[0] == 3


@pytest.mark.parametrize("policy", ["delete", "compact", "delete,compact"])
def test_records_that_must_stay_are_not_left_to_another_cleanup_policy(policy: str) -> None:
    _, settings = ensured(JOURNAL, journal=(1, {"cleanup.policy": policy}))
    assert set(settings["cleanup.policy"].split(",")) == {"compact", "delete"}


def test_a_user_without_the_right_to_see_settings_asks_for_none() -> None:
    ensure_own(cast(Topics, FakeTopics({"journal": (1, {})}, forbids=True)), JOURNAL)


@pytest.mark.parametrize("name", ["headrace-http-keys", "headrace-http-keys.alice"])
def test_the_door_lets_nobody_write_to_its_keys(name: str) -> None:
    refuse_own_topic("headrace-http-keys-of-mine")
    with pytest.raises(Refusal, match="clients cannot write"):
        refuse_own_topic(name)
