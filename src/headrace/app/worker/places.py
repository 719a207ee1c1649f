"""Committed offsets and log end offsets of partitions, asked for until the cluster answers.

A partition cannot begin without them. An answer may take long: an open transaction of a crashed
worker hides its offsets until the cluster ends it, and a broker that has just started has no
answers for a while. So each request is a short one, and `meanwhile` is called in between: the
worker's other work continues. Called on the polling thread only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from headrace.app.dispatch.completion import Completion, decode, topic_id_in
from headrace.app.dispatch.owned_partition import Stream
from headrace.client.admin.requests import Requests
from headrace.client.faults import Fault
from headrace.client.intake import Intake
from headrace.client.records import TopicPartition

log = logging.getLogger("headrace.app")

QUESTION_S = 2.0
LOOK_AGAIN_S = 0.2
SAY_EVERY_S = 10.0
STOPPING_S = 5.0  # a worker that is stopping asks no longer than this

T = TypeVar("T")


class ResumeOffsets:
    def __init__(
        self,
        member: Intake,
        requests: Requests,
        *,
        meanwhile: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._member = member
        self._requests = requests
        self._meanwhile = meanwhile
        self._stopping = stopping

    def find(self, streams: list[Stream], *, anew: bool, start_from: str) -> None:
        """Set where each stream goes on, and which of its records a former owner has finished. With
        `anew` their topics were created again, so the group's offsets in them mean nothing.
        """
        found = self.committed(stream.place for stream in streams)
        earliest, latest = list[Stream](), list[Stream]()
        for stream in streams:
            offset, said = found[stream.place]
            all_of_it = (anew and not stream.retry) or _is_of_former_topic(stream, offset, said)
            if offset >= 0 and not all_of_it:
                stream.completion = Completion(offset, decode(offset, said), stream.topic_id)
                stream.committed = (offset, said or "")
            elif stream.retry or all_of_it or start_from == "earliest":
                earliest.append(stream)
            else:
                latest.append(stream)
        offsets = self.starts([s.place for s in earliest])
        offsets |= self.ends([s.place for s in latest])
        for stream in earliest + latest:
            position = offsets.get(stream.place, 0)
            stream.completion = Completion(position, topic_id=stream.topic_id)

    def committed(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str | None]]:
        """Offset, below 0 if there is none, and metadata of each.

        With read_committed librdkafka asks for stable offsets: an open transaction of a former
        owner is waited for (KIP-447).
        """
        wanted = list(places)
        return self.asked(lambda: self._member.committed(wanted, QUESTION_S))

    def starts(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return self.asked(lambda: self._requests.first_offsets(places, QUESTION_S))

    def ends(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets, after open transactions."""
        return self.asked(lambda: self._requests.end_offsets(places, QUESTION_S))

    def asked(self, question: Callable[[], T]) -> T:
        """The answer to a question, which is repeated until the cluster answers it."""
        began = said = time.monotonic()
        while True:
            try:
                return question()
            except Fault as fault:
                now = time.monotonic()
                gives_up = self._stopping() and now - began > STOPPING_S
                if gives_up or fault.is_fatal:
                    raise
                if now - said >= SAY_EVERY_S:
                    said = now
                    log.warning(
                        "partitions cannot begin yet, after %.0f seconds: %s",
                        now - began, fault,
                    )  # fmt: skip
                self._meanwhile()
                self._look_at_the_cluster()
                time.sleep(LOOK_AGAIN_S)

    def _look_at_the_cluster(self) -> None:
        """Refresh the metadata. A broker that restarted has new epochs; librdkafka's admin client
        learns them by itself only after five minutes, and asks with the old ones until then.
        """
        with suppress(Fault):
            self._requests.partition_counts(QUESTION_S)


def _is_of_former_topic(stream: Stream, offset: int, said: str | None) -> bool:
    """Whether the group's offset was committed for a deleted topic of the same name.

    A commit that is under way while a topic is deleted may reach the group after its deletion.
    """
    of_topic = topic_id_in(said)
    if stream.topic_id is None or of_topic is None or of_topic == stream.topic_id:
        return False
    log.warning(
        "offset %d of %s was committed for a topic that is deleted: what is in the new one is read "
        "from its beginning",
        offset,
        stream.place,
    )
    return True
