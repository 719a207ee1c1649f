"""The HTTP server's own topic, with the idempotency keys: no request may write to it or create it.

A request that created it by writing would make it with the cluster's number of partitions, and
every key would be refused from then on.
"""

from __future__ import annotations

from headrace.services.http.refusal import FORBIDDEN, Refusal

KEYS_TOPIC = "headrace-http-keys"


def refuse_own_topic(topic: str) -> None:
    """Raises Refusal for the topic of idempotency keys, and for those of single users."""
    if topic.startswith(KEYS_TOPIC) and topic[len(KEYS_TOPIC) :][:1] in ("", "."):
        raise Refusal(
            403,
            f"The topic {topic} holds the idempotency keys of this server; "
            "clients cannot write to it.",
            code=FORBIDDEN,
        )
