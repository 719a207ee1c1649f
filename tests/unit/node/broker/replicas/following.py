"""The part of a broker that follows, played by hand: its fetches in a session of its own."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import fetch
from tests.unit.node.broker.rig import WAITS, Rig

VERSION = 17


class Following:
    """Broker `broker_id` follows one partition of the rig's node."""

    def __init__(self, rig: Rig, topic: str, broker_id: int, index: int = 0) -> None:
        self.rig = rig
        self.replica = rig.node.broker.topics.by_name[topic].replicas[index]
        self.broker_id = broker_id
        self.session_id = self.session_epoch = 0
        self.connection = rig.connect()

    def asks(self, offset: int | None = None, *, epoch: int | None = None, wait_ms: int = 0) -> Any:
        """The next fetch of its session, the first of which names the partition."""
        request = fetch.FetchRequest(
            replica_state=fetch.ReplicaState(self.broker_id, -1),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
        )
        if self.session_epoch == 0 or offset is not None or epoch is not None:
            request.topics = [self._named(offset, epoch)]
        return self._send(request)

    def forgets(self) -> Any:
        """It does not follow the partition any more."""
        gone = fetch.ForgottenTopic(topic_id=self.replica.topic_id, partitions=[self.replica.index])
        request = fetch.FetchRequest(
            replica_state=fetch.ReplicaState(self.broker_id, -1),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            forgotten_topics_data=[gone],
        )
        return self._send(request)

    def answer(self) -> Any:
        """To the fetch that waited."""
        return self._take(self.rig.answer_on(self.connection, fetch, VERSION))

    def _named(self, offset: int | None, epoch: int | None) -> Any:
        replica = self.replica
        at = replica.log.end_offset if offset is None else offset
        wanted = fetch.FetchPartition(
            replica.index, replica.epoch if epoch is None else epoch, at, -1, 0, 1_000_000
        )
        return fetch.FetchTopic("", replica.topic_id, [wanted])

    def _send(self, request: Any) -> Any:
        answer = self.rig.ask(fetch, request, version=VERSION, session=self.connection)
        self.session_epoch += 1
        return answer if answer == WAITS else self._take(answer)

    def _take(self, answer: Any) -> Any:
        self.session_id = answer.session_id
        return answer
