"""The settings that lose nothing, except those that contradict the program's own settings.

acks=all, idempotent, retries without end within the delivery timeout; sizes as the Java client's.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.connection import Setting

# Kafka's recipe against loss, and the Java client's own sizes.
NO_LOSS: dict[str, Setting] = {
    "acks": "all",
    "enable.idempotence": True,
    "retries": 2147483647,
    "linger.ms": 5,
    "batch.size": 16384,
    "queue.buffering.max.kbytes": 32768,
}
DELIVERY_TIMEOUT_MS = 120_000

# When no broker answers, librdkafka (from 2.10 on) drops the brokers that it knows and bootstraps
# again, but a transactional producer may go on waiting for a dropped one:
# send_offsets_to_transaction then does not return at its time-out. Seen with 2.16.0, on Apache
# Kafka too; librdkafka's issues 5511 and 5456. So the known brokers are tried again; a call that
# still does not return is given up (transaction_offsets.py). The price: after a move of the whole
# cluster to other addresses a new producer must be made.
NO_REBOOTSTRAP = "none"


def defaults_for(
    given: Mapping[str, Setting], transactional_id: str | None = None
) -> dict[str, Setting]:
    """The no-loss settings without those that contradict the given ones, which win."""
    chosen = dict(NO_LOSS)
    if transactional_id:
        chosen["transactional.id"] = transactional_id  # its time-out bounds the delivery timeout
        chosen["metadata.recovery.strategy"] = NO_REBOOTSTRAP
    elif "message.timeout.ms" not in given:
        chosen["delivery.timeout.ms"] = DELIVERY_TIMEOUT_MS
    if _contradicts_idempotence(given):
        chosen["enable.idempotence"] = False
        del chosen["acks"], chosen["retries"]
        if not {"acks", "request.required.acks"} & given.keys():
            chosen["acks"] = "all"
    for name, alias in ALIASES.items():
        if alias in given:
            chosen.pop(name, None)
    return chosen


# Older names of librdkafka's settings: with two names for one setting the last one would win.
ALIASES = {
    "acks": "request.required.acks",
    "linger.ms": "queue.buffering.max.ms",
    "retries": "message.send.max.retries",
}


def _contradicts_idempotence(given: Mapping[str, Setting]) -> bool:
    acks = str(given.get("acks", given.get("request.required.acks", "all")))
    retries = str(given.get("retries", given.get("message.send.max.retries", 1)))
    in_flight = given.get("max.in.flight", given.get("max.in.flight.requests.per.connection", 5))
    return acks not in ("all", "-1") or retries == "0" or _more_than_five(in_flight)


def _more_than_five(in_flight: Setting) -> bool:
    number = str(in_flight)
    return number.isdecimal() and int(number) > 5  # librdkafka refuses what is not a number
