"""The headers that the application SDK sets on records of its retry and dead-letter topics.

`retry-` headers travel with a record from its first failure on, through delay, retry and redrive;
`dead-` headers say why it was parked and are dropped when it is driven again. Values are UTF-8
text, times are milliseconds since 1970. A handler sees none of them: `Message` has what they say.
"""

from __future__ import annotations

from headrace.contract.headers import DUE_AT, MESSAGE_ID, SOURCE, SOURCE_TOPIC_ID

# ---- on records in `<topic>.<group>.retry` and `.dead`
ATTEMPT = "headrace-retry-attempt"  # attempts made so far
FIRST_FAILED_AT = "headrace-retry-first-failed-at"
ORIGIN = "headrace-retry-origin"  # topic/partition/offset where it was first read
ORIGIN_AT = "headrace-retry-origin-at"  # its timestamp there
CARRIED_ID = "headrace-retry-message-id"  # its message id, which the delay service would replace
DUE = "headrace-retry-due-at"  # not before; on records whose owner waits itself
WORKER = "headrace-retry-worker"  # host/process that made the last attempt
REDRIVES = "headrace-redrives"  # how often it came back from the dead letters

# ---- only on records in `<topic>.<group>.dead`
DEAD_ERROR = "headrace-dead-error"  # the exception's class, with its module
DEAD_MESSAGE = "headrace-dead-message"
DEAD_STACK = "headrace-dead-stack"  # the last 4 KiB of it
DEAD_ATTEMPTS = "headrace-dead-attempts"
DEAD_FIRST_AT = "headrace-dead-first-at"
DEAD_LAST_AT = "headrace-dead-last-at"
DEAD_TOPIC = "headrace-dead-topic"  # where it was first read
DEAD_PARTITION = "headrace-dead-partition"
DEAD_OFFSET = "headrace-dead-offset"
DEAD_GROUP = "headrace-dead-group"
DEAD_PREFIX = "headrace-dead-"

# Set anew on each copy, so an older one is dropped first.
RETRY = frozenset({ATTEMPT, FIRST_FAILED_AT, ORIGIN, ORIGIN_AT, CARRIED_ID, DUE, WORKER})
# What the delay service adds on the way.
ON_THE_WAY = frozenset({DUE_AT, SOURCE, SOURCE_TOPIC_ID})

__all__ = ["MESSAGE_ID", "SOURCE", "SOURCE_TOPIC_ID"]
