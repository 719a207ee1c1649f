"""Sends a group's offsets with a transaction, within a time limit that librdkafka does not keep.

`send_offsets_to_transaction` of librdkafka 2.16 can wait for ever for a connection to a coordinator
that it has dropped: the request keeps the old broker object, and its time-out is not checked
(librdkafka's issues 5511 and 5456). `metadata.recovery.strategy=none` prevents it on one broker. In
a cluster a broker that restarts is missing from the metadata for a moment and is dropped all the
same: the delay service was seen to stop for good (1 of 74 runs with three kills each).

So the call is made on a thread of its own, which costs 45 us for each transaction. If it does not
return, the producer is lost: the error is fatal, and a new producer of the same transactional id
ends the open transaction. The thread ends with the call, or with the process.
"""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as NativePartition

# Added to the call's own time-out, for a machine that is busy.
GRACE_S = 5.0
HANGS = "librdkafka hangs while it sends offsets: the producer must be made again"


def send_offsets(
    producer: Producer,
    offsets: list[NativePartition],
    member: Any,
    timeout_s: float,
    *,
    grace_s: float = GRACE_S,
) -> None:
    """As `send_offsets_to_transaction`; a fatal KafkaException if that does not return in time."""
    failures: list[BaseException] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, member, timeout_s)
        except BaseException as failure:  # noqa: BLE001 - raised by the caller's thread
            failures.append(failure)

    thread = threading.Thread(target=send, name="headrace-offsets", daemon=True)
    thread.start()
    thread.join(timeout_s + grace_s)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, HANGS, fatal=True))
    if failures:
        raise failures[0]
