"""The headers of `wire/contract/headers.py` that an app sets on records for retry or dead letters.

`retry-` headers travel with a record from its first failure on, through delay, retry and redrive;
`dead-` headers hold the reason for parking and are dropped by a redrive. Values are UTF-8 text,
times are milliseconds since 1970. A handler sees none of them: `Message` has their contents.
"""

from __future__ import annotations

from headrace.wire.contract.headers import (
    DEAD_ATTEMPTS,
    DEAD_CUT,
    DEAD_ERROR,
    DEAD_FIRST_AT,
    DEAD_GROUP,
    DEAD_LAST_AT,
    DEAD_MESSAGE,
    DEAD_OFFSET,
    DEAD_PARTITION,
    DEAD_PREFIX,
    DEAD_STACK,
    DEAD_TOPIC,
    DUE_AT,
    MESSAGE_ID,
    REDRIVES,
    SOURCE,
    SOURCE_TOPIC_ID,
)
from headrace.wire.contract.headers import RETRY_ATTEMPT as ATTEMPT
from headrace.wire.contract.headers import RETRY_DUE_AT as DUE
from headrace.wire.contract.headers import RETRY_FIRST_FAILED_AT as FIRST_FAILED_AT
from headrace.wire.contract.headers import RETRY_MESSAGE_ID as CARRIED_ID
from headrace.wire.contract.headers import RETRY_ORIGIN as ORIGIN
from headrace.wire.contract.headers import RETRY_ORIGIN_AT as ORIGIN_AT
from headrace.wire.contract.headers import RETRY_WORKER as WORKER

# Set on each copy, so an older one is dropped first.
RETRY = frozenset({ATTEMPT, FIRST_FAILED_AT, ORIGIN, ORIGIN_AT, CARRIED_ID, DUE, WORKER})
# The headers that the delay service adds.
ON_THE_WAY = frozenset({DUE_AT, SOURCE, SOURCE_TOPIC_ID})

__all__ = [
    "ATTEMPT",
    "CARRIED_ID",
    "DEAD_ATTEMPTS",
    "DEAD_CUT",
    "DEAD_ERROR",
    "DEAD_FIRST_AT",
    "DEAD_GROUP",
    "DEAD_LAST_AT",
    "DEAD_MESSAGE",
    "DEAD_OFFSET",
    "DEAD_PARTITION",
    "DEAD_PREFIX",
    "DEAD_STACK",
    "DEAD_TOPIC",
    "DUE",
    "FIRST_FAILED_AT",
    "MESSAGE_ID",
    "ON_THE_WAY",
    "ORIGIN",
    "ORIGIN_AT",
    "REDRIVES",
    "RETRY",
    "SOURCE",
    "SOURCE_TOPIC_ID",
    "WORKER",
]
