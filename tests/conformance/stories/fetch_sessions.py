"""Fetch 7-18 in sessions (KIP-227): opened, changed, broken, closed."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import fetch
from headrace.wire.protocol.messages.fetch import FetchTopic, ForgottenTopic
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import UNKNOWN, fetch_request, fetch_topic, from_offset

WITH_SESSIONS = range(7, 19)


class Session:
    """Asks in one session and keeps count of its epoch, as a client does."""

    def __init__(self, stage: Stage, version: int) -> None:
        self.stage, self.version = stage, version
        self.id, self.epoch = 0, 0

    def ask(
        self,
        line: str,
        *topics: FetchTopic,
        forgotten: list[ForgottenTopic] | None = None,
        session: tuple[int, int] | None = None,
    ) -> Any:
        request = fetch_request(*topics, session=session or (self.id, self.epoch))
        request.forgotten_topics_data = forgotten or []
        answer = self.stage.ask(f"v{self.version} {line}", fetch, self.version, request)
        if answer is not None and answer.error_code == 0 and session is None:
            self.id = answer.session_id
            self.epoch += 1
        return answer

    def forget(self, topic: Topic, *partitions: int) -> list[ForgottenTopic]:
        if self.version >= 13:
            return [ForgottenTopic("", topic.id, list(partitions))]
        return [ForgottenTopic(topic.name, bytes(16), list(partitions))]

    def of(self, topic: Topic, *offsets: int) -> FetchTopic:
        """The first partitions of a topic from these offsets on."""
        partitions = [from_offset(offset, partition=n) for n, offset in enumerate(offsets)]
        return fetch_topic(self.version, topic, *partitions)


def the_life_of_a_session(stage: Stage) -> None:
    for version in WITH_SESSIONS:
        topic = stage.topic(f"session-v{version}", partitions=3)
        stage.produce(topic, build(R(b"a"), R(b"b")))
        session = Session(stage, version)
        session.ask("opened", session.of(topic, 0, 0))
        session.ask("from behind it", session.of(topic, 2))
        session.ask("nothing new")
        stage.produce(topic, build(R(b"c")), partition=1)
        session.ask("something in partition 1")
        session.ask("asked from there again")
        session.ask("from behind it too", fetch_topic(version, topic, from_offset(1, partition=1)))
        session.ask("a partition joins", fetch_topic(version, topic, from_offset(0, partition=2)))
        session.ask("one is forgotten", forgotten=session.forget(topic, 1))
        stage.produce(topic, build(R(b"d")), partition=1)
        session.ask("what is forgotten is silent")
        session.ask("forgotten twice", forgotten=session.forget(topic, 1))
        session.ask("all forgotten", forgotten=session.forget(topic, 0, 2))
        session.ask("an empty session", session.of(topic, 0))
        session.ask("closed", session=(session.id, -1))
        session.ask("asked after the end")


def sessions_that_go_wrong(stage: Stage) -> None:
    for version in WITH_SESSIONS:
        topic = stage.topic(f"session-wrong-v{version}", partitions=2)
        stage.produce(topic, build(R(b"a")))
        session = Session(stage, version)
        session.ask("unknown session", session=(123456, 1))
        session.ask("unknown session, full", session.of(topic, 0), session=(123456, 0))
        session.ask("unknown session, closing", session=(123456, -1))
        session.ask("no session, epoch 5", session.of(topic, 0), session=(0, 5))
        session.ask("opened", session.of(topic, 0, 0))
        session.ask("epoch repeated", session=(session.id, 0))
        session.ask("is it still there", session=(session.id, 1))
        session.ask("epoch too high", session=(session.id, 9))
        session.ask("is it there once more", session=(session.id, 2))
        session.ask("opened without topics", session=(0, 0))


def sessions_and_refusals(stage: Stage) -> None:
    """A partition in error is named in each answer until it is forgotten."""
    for version in WITH_SESSIONS:
        topic = stage.topic(f"session-errors-v{version}")
        stage.produce(topic, build(R(b"a")))
        session = Session(stage, version)
        beyond = fetch_topic(version, topic, from_offset(50), from_offset(0, partition=7))
        session.ask("opened with errors", beyond)
        session.ask("errors once more")
        session.ask("mended", session.of(topic, 1))
        unknown = Session(stage, version)
        unknown.ask("unknown topic", unknown.of(UNKNOWN, 0), unknown.of(topic, 0))
        unknown.ask("still unknown")


def topics_come_and_go(stage: Stage) -> None:
    for version in (12, 13, 18):
        name = f"session-deleted-v{version}"
        topic = stage.topic(name)
        stage.produce(topic, build(R(b"a")))
        session = Session(stage, version)
        session.ask("opened", session.of(topic, 0))
        stage.delete(name)
        session.ask("deleted")
        again = stage.topic(name)
        stage.produce(again, build(R(b"new")))
        session.ask("made again")
        session.ask("made again, second time")


def names_and_ids_do_not_mix(stage: Stage) -> None:
    """A session begun with names cannot go on with ids, nor the other way round."""
    topic = stage.topic("session-mixed")
    stage.produce(topic, build(R(b"a")))
    for begun, continued in ((12, 13), (13, 12)):
        first, then = Session(stage, begun), Session(stage, continued)
        first.ask(f"begun before v{continued}", first.of(topic, 0))
        then.id, then.epoch = first.id, first.epoch
        then.ask(f"continued after v{begun}", then.of(topic, 0))


STORIES = (
    the_life_of_a_session,
    sessions_that_go_wrong,
    sessions_and_refusals,
    topics_come_and_go,
    names_and_ids_do_not_mix,
)
