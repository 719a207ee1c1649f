"""The names of all record headers that begin with `headrace-`, and what their values look like.

They are a contract with producers and consumers in every language: a name never gets another
meaning. Values are UTF-8 text; times are milliseconds since 1970 unless noted otherwise. Every
header is listed here and in `docs/guide/headers.md`, and nowhere else: a test compares them.
"""

from __future__ import annotations

PREFIX = "headrace-"

# ---- set by producers on a record for `<topic>.delay` -------------------------------------------
DELAY = "headrace-delay"  # `30m`, `1h30m`, `500ms` or plain milliseconds, from the append time
DELIVER_AT = "headrace-deliver-at"  # milliseconds since 1970 or RFC 3339
DELAY_LEVEL = "headrace-delay-level"  # 1 to 18, the levels of RocketMQ
PARTITION = "headrace-partition"  # of the target; without it the companion's partition number
ID = "headrace-id"  # names a schedule within its partition; the same again replaces it
CANCEL = "headrace-cancel"  # the id of the schedule to cancel; the record's value is null
CRON = "headrace-cron"  # five fields: minute hour day-of-month month day-of-week
CRON_ZONE = "headrace-cron-zone"  # name of a time zone, such as Europe/Berlin; UTC without it
CRON_UNTIL = (
    "headrace-cron-until"  # the last moment for a run, written as for `headrace-deliver-at`
)
CRON_COUNT = "headrace-cron-count"  # how many runs are planned in all

# ---- confirmed delivery, see `confirmations.py` -------------------------------------------------
# On a row of an outbox: `10m`. The relay sends CONFIRM instead of it.
CONFIRM_WITHIN = "headrace-confirm-within"
CONFIRM = "headrace-confirm"  # the id of the outbox that waits for a confirmation

# ---- set by the delay service on what it writes -------------------------------------------------
DUE_AT = "headrace-due-at"  # milliseconds since 1970
SOURCE = "headrace-source"  # topic/partition/offset of the record that asked for it
SOURCE_TOPIC_ID = "headrace-source-topic-id"  # of that topic: a recreated one has the same name
# <id>@<due milliseconds>, for records with an id; a cron without an id uses its source instead
MESSAGE_ID = "headrace-message-id"
REJECTED_REASON = "headrace-rejected-reason"  # a sentence, on records in `<topic>.delay.rejected`
OUTCOME = "headrace-outcome"  # of a cancel, in `<topic>.delay.outcomes`: see OUTCOMES

# "cancelled": it is never visible to read_committed consumers. "too-late": it was delivered.
# "unknown": no schedule of this id is known in this partition.
CANCELLED = "cancelled"
TOO_LATE = "too-late"
UNKNOWN = "unknown"
OUTCOMES = (CANCELLED, TOO_LATE, UNKNOWN)

# ---- set by clients of ours on what they hand out ----------------------------------------------
# Instead of a record's headers, if the name of one is not UTF-8: librdkafka's Python binding then
# gives none of them.
UNREADABLE = "headrace-unreadable-headers"

# ---- set by `headrace replay` -------------------------------------------------------------------
REPLAYED_FROM = "headrace-replayed-from"  # topic/partition/offset; one header for each replay

# ---- set by apps on records in `<topic>.<group>.retry` and `.dead`, and on delayed retries -------
RETRY_ATTEMPT = "headrace-retry-attempt"  # attempts made so far
RETRY_FIRST_FAILED_AT = "headrace-retry-first-failed-at"
RETRY_ORIGIN = "headrace-retry-origin"  # topic/partition/offset where it was first read
RETRY_ORIGIN_AT = "headrace-retry-origin-at"  # its timestamp there
RETRY_MESSAGE_ID = "headrace-retry-message-id"  # its own, which the delay service would replace
RETRY_DUE_AT = "headrace-retry-due-at"  # not before; on records whose owner waits itself
RETRY_WORKER = "headrace-retry-worker"  # host/process that made the last attempt
REDRIVES = "headrace-redrives"  # how often it came back from the dead letters

# ---- only on records in `<topic>.<group>.dead` --------------------------------------------------
DEAD_PREFIX = "headrace-dead-"
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
# On a letter that a broker wrote: letters with the same value are one. A broker that is killed
# while it writes a letter writes it again.
DEAD_ID = "headrace-dead-id"
# On a letter that did not fit into the topic and was cut: the record's own size and hash, as JSON.
DEAD_CUT = "headrace-dead-cut"

# ---- on records of the topic `headrace.delay.far` -----------------------------------------------
FAR_KEY = "headrace-far-key"  # the record's own key; absent when it is null
FAR_APPENDED_AT = "headrace-far-appended-at"  # milliseconds since 1970, when the intake took it
FAR_NULL = "headrace-far-null"  # present when the record's own value is null
FAR_TOPIC_ID = "headrace-far-topic-id"  # of the intake: a recreated one has the same name

# The instruction in a record's headers. A delivered record carries none of them.
INSTRUCTIONS = frozenset(
    {DELAY, DELIVER_AT, DELAY_LEVEL, PARTITION, ID, CANCEL, CRON, CRON_ZONE, CRON_UNTIL, CRON_COUNT}
)
# The headers that the service itself adds: a record that was delivered once and is delayed again
# loses them, but for a message id that its sender gave to a message without a schedule's id.
DELIVERED = frozenset(
    {DUE_AT, SOURCE, SOURCE_TOPIC_ID, MESSAGE_ID, FAR_KEY, FAR_APPENDED_AT, FAR_NULL, FAR_TOPIC_ID}
)
NOT_HANDED_ON = INSTRUCTIONS | DELIVERED
