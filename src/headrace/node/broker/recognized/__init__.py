"""Recognized requests: a repeated request of a connection is answered without being decoded.

Clients in a loop send requests whose bytes differ only a little. The handler of such a request
calls `remember` when it has answered one, which keeps the meaning of its bytes. `answer` gets the
next frame of the connection: it answers, or it returns None with nothing done and the frame is
decoded. Dispatch calls `answer` and does not know the bytes; a session has one slot for all of it
(`memory.py`).

| request | may differ in | processor time, decoded -> recognized |
|---|---|---|
| Produce of one batch, v9-13 | correlation id, records | 7.6 -> 4.5 us |
| OffsetCommit of one partition, v8-10 | correlation id, offset | 27.5 -> 16.9 us |

Measured in process with one record of 100 bytes or one partition, without an authorizer: the median
of five runs, of each the best round of 200 requests, on a busy machine (2026-11-16).

Why an answer equals that of the general path:

1. The same bytes mean the same. The remembered bytes are those that our codec writes for the
   request, whatever its frame looked like (`memory.plain_bytes`), so the place of the varying part
   is known. A frame is recognized if it has these bytes around that part and no others: the decoder
   would read it to the same values. Versions are kept apart; the client id is among the bytes.
2. Everything that may have changed since is looked up again: the topic (deleted, made again,
   grown), the rights, and what a partition or a group decides (leadership, epoch, in-sync replicas,
   the rules of a topic, membership). Both paths end in the same function, `one_batch.append_to` or
   `offset_rules.commit`.
3. A request that would be refused is left to the general path, which logs and counts it once. A
   batch that its partition refuses is an exception: `append_to` refuses it for both paths.
4. Dispatch measures quotas around both paths.

`tests/unit/node/broker/test_recognized_equals_general.py` sends the same frames both ways, with
changes in between, for each row of `RECOGNIZED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.node.broker.recognized import offset_commit, produce
from headrace.node.serving.api import Recognize
from headrace.wire.protocol.messages import offset_commit as offset_commit_messages
from headrace.wire.protocol.messages import produce as produce_messages


@dataclass(slots=True, frozen=True)
class Recognition:
    """One row: the requests, and the functions that answer them."""

    messages: Any  # the generated module of headrace.wire.protocol.messages
    first_version: int  # the older layouts are not known
    answer: Recognize


RECOGNIZED = (
    Recognition(produce_messages, produce.FIRST_VERSION, produce.answer),
    Recognition(offset_commit_messages, offset_commit.FIRST_VERSION, offset_commit.answer),
)
_BY_KEY = {row.messages.API_KEY: row for row in RECOGNIZED}


def recognition_of(api_key: int, version: int) -> Recognize | None:
    """Returns the function for the table of routes, or None."""
    row = _BY_KEY.get(api_key)
    return None if row is None or version < row.first_version else row.answer
