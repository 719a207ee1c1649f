"""A request that is not served: HTTP's status, the proxies' own code, one sentence.

The shape `{"error_code": ..., "message": ...}` and the five-digit codes are those of Confluent's
REST Proxy (its `Errors.java`), which Karapace and Redpanda answer too.
"""

from __future__ import annotations

# In the order of their numbers.
UNAUTHORIZED, FORBIDDEN = 40101, 40301
TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, INSTANCE_NOT_FOUND = 40401, 40402, 40403
FORMAT_MISMATCH = 40601
ALREADY_SUBSCRIBED, INSTANCE_EXISTS, ILLEGAL_STATE = 40901, 40902, 40903
NOT_JSON, BAD_CONFIG, BAD_PAYLOAD = 42203, 42204, 42206
KAFKA_ERROR, KAFKA_RETRIABLE = 50002, 50003
BAD_REQUEST, NOT_FOUND, NOT_ALLOWED, TIMED_OUT, TOO_LARGE = 400, 404, 405, 408, 413
WRONG_KIND, MISDIRECTED, UNPROCESSABLE, TOO_MANY = 415, 421, 422, 429
FAILED, NOT_SERVED, AWAY = 500, 501, 503


class Refusal(Exception):
    """`code` is the proxies' (`error_code`), by default the status itself."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code
        self.message = message
        self.retry_after_s = retry_after_s

    def document(self) -> dict[str, int | str]:
        return {"error_code": self.code, "message": self.message}


def bad_payload(message: str) -> Refusal:
    return Refusal(UNPROCESSABLE, message, code=BAD_PAYLOAD)


def busy(message: str, retry_after_s: int = 1) -> Refusal:
    return Refusal(TOO_MANY, message, retry_after_s=retry_after_s)


def topic_not_found() -> Refusal:
    return Refusal(NOT_FOUND, "Topic not found.", code=TOPIC_NOT_FOUND)


def partition_not_found() -> Refusal:
    return Refusal(NOT_FOUND, "Partition not found.", code=PARTITION_NOT_FOUND)
