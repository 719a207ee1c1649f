"""Client quotas, with Apache Kafka's rules: bytes, request time, and changes to topics per second.

A limit is set for a user, a client id, both together, or for all that have none of their own; the
most specific one counts (`Limits.find`). A client above its quota gets its answer with a throttle
time, and is not read for that long (`serving/dispatch.py` does it). A `Meter` goes with one request
and decides for how long: produce by the size of the request, fetch by the records of the answer,
every request by the time that it took, changes by the partitions they touch.

Without limits there is no meter, and a request costs nothing more. Bounded: the `MOST_TRACKED` most
recent users and client ids are measured per kind; one that comes back after more others than that
starts at zero. Not here: connections (`process/listeners/connection_limits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from headrace.environment import Now
from headrace.node.metadata.image import QuotaEntity
from headrace.node.serving.api import Call, Peer
from headrace.node.serving.rates import Rate, TokenBucket
from headrace.wire.protocol.errors import ErrorCode, KafkaError

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"

PRODUCE_KEY, FETCH_KEY = 0, 1
# Requests between brokers, and logins, do not count against a client's request time.
EXEMPT = frozenset({17, 27, 36})  # SaslHandshake, WriteTxnMarkers, SaslAuthenticate
MOST_TRACKED = 10_000
UNLIMITED = 2**31 - 1

Tag = tuple[str, str]  # user and client id; "" if it does not count
Measure = TypeVar("Measure", Rate, TokenBucket)


class QuotaLimits:
    """The limits of one kind of quota, by user and client id."""

    __slots__ = ("_by_entity", "_found")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._by_entity = {
            entity: limits[key] for entity, limits in quotas.items() if key in limits
        }
        self._found: dict[Tag, tuple[Tag, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def find(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        """Returns the limit that applies, and the tag that shares it; None if there is none."""
        who = (user, client_id)
        if who in self._found:
            return self._found[who]
        if len(self._found) >= MOST_TRACKED:
            self._found.clear()
        found = self._found[who] = self._search(user, client_id)
        return found

    def _search(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        """Searches in Apache Kafka's order of precedence, the most specific first."""
        by_entity = self._by_entity
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        for tag, entity in (
            (both, (("client-id", client_id), ("user", user))),
            (both, (("client-id", None), ("user", user))),
            (of_user, (("user", user),)),
            (both, (("client-id", client_id), ("user", None))),
            (both, (("client-id", None), ("user", None))),
            (of_user, (("user", None),)),
            (of_client, (("client-id", client_id),)),
            (of_client, (("client-id", None),)),
        ):
            if tag is not of_user and not client_id:
                continue  # limits for client ids do not apply to a client without one
            limit = by_entity.get(entity)
            if limit is not None:
                return tag, limit
        return None


class Tracked(Generic[Measure]):
    """The measured rates by user and client id, least recently used first."""

    __slots__ = ("limits", "throttled", "_new", "_measures")

    def __init__(self, new: Callable[[], Measure]) -> None:
        self.limits = QuotaLimits({}, "")
        self.throttled = 0  # throttled requests, for the metrics
        self._new: Callable[[], Measure] = new
        self._measures: dict[Tag, Measure] = {}

    def of(self, tag: Tag) -> Measure:
        measures = self._measures
        found = measures.pop(tag, None)
        if found is None:
            found = self._new()
            if len(measures) >= MOST_TRACKED:
                del measures[next(iter(measures))]
        measures[tag] = found
        return found

    def __len__(self) -> int:
        return len(self._measures)


class ClientQuotas:
    """All client quotas of one node; `follow` takes them from the metadata."""

    def __init__(
        self,
        now: Now,
        *,
        samples: int,
        sample_ms: int,
        mutation_samples: int,
        mutation_sample_ms: int,
        stopwatch: Callable[[], int] | None,
    ) -> None:
        """`stopwatch` counts nanoseconds; None: request time is not measured."""
        self.now = now
        self.stopwatch = stopwatch
        self.window_s = (samples - 1) * sample_ms / 1000
        self.longest_request_throttle_ms = sample_ms
        self.throttled_ms = 0
        self._followed: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._limiting = False
        self.produce = Tracked(lambda: Rate(samples, sample_ms))
        self.fetch = Tracked(lambda: Rate(samples, sample_ms))
        self.request = Tracked(lambda: Rate(samples, sample_ms))
        self.mutation = Tracked(lambda: TokenBucket(mutation_samples, mutation_sample_ms))

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> bool:
        """Apply new quotas; returns whether there is any limit."""
        if quotas is self._followed:
            return self._limiting
        self._followed = quotas
        self.produce.limits = QuotaLimits(quotas, PRODUCER_BYTE_RATE)
        self.fetch.limits = QuotaLimits(quotas, CONSUMER_BYTE_RATE)
        self.request.limits = QuotaLimits(quotas, REQUEST_PERCENTAGE)
        self.mutation.limits = QuotaLimits(quotas, CONTROLLER_MUTATION_RATE)
        kinds = (self.produce, self.fetch, self.request, self.mutation)
        self._limiting = any(bool(kind.limits) for kind in kinds)
        return self._limiting

    def meter(self, peer: Peer, frame: memoryview) -> Meter:
        """Returns the meter of a request whose frame has just arrived."""
        length = int.from_bytes(frame[8:10], "big", signed=True)
        client_id = frame[10 : 10 + max(length, 0)].tobytes().decode("utf-8", "replace")
        return Meter(self, peer.principal.name, client_id, len(frame))


class Meter:
    """Measures one request for all quotas."""

    __slots__ = (
        "_quotas",
        "_user",
        "_client_id",
        "_size",
        "_started",
        "_spent",
        "_fetch_throttle_ms",
        "_mutation_throttle_ms",
        "_mutated_ms",
    )

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, size: int) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._size = size
        self._started = quotas.stopwatch() if quotas.stopwatch is not None else 0
        self._spent: int | None = None  # nanoseconds, for a request that waits
        self._fetch_throttle_ms: int | None = None  # decided with the answer to a Fetch
        self._mutation_throttle_ms = 0
        self._mutated_ms = 0

    def waits(self) -> None:
        """The request waits from now on; the wait does not count as request time."""
        if self._quotas.stopwatch is not None:
            self._spent = self._quotas.stopwatch() - self._started

    def finish(self, api_key: int, *, answered: bool = True) -> int:
        """Call before the request is answered, or done without an answer; returns how long to
        throttle."""
        quotas = self._quotas
        if api_key == FETCH_KEY and self._fetch_throttle_ms is not None:
            wait_ms = self._fetch_throttle_ms
        elif api_key == PRODUCE_KEY:
            wait_ms = self._recorded(quotas.produce, self._size)
            if answered:
                wait_ms = max(wait_ms, self._request_time())
        elif api_key in EXEMPT:
            wait_ms = 0
        else:
            wait_ms = max(self._request_time(), self._mutation_wait_ms())
        quotas.throttled_ms += wait_ms
        return wait_ms

    # Fetch

    def exempt(self) -> None:
        """It is a follower's fetch: a limit for clients must not slow replication down."""
        self._fetch_throttle_ms = 0

    def most_fetch_bytes(self) -> int:
        """Returns the size above which an answer would be throttled for certain, even after a long
        pause."""
        found = self._quotas.fetch.limits.find(self._user, self._client_id)
        if found is None:
            return UNLIMITED
        return min(UNLIMITED, int(found[1] * self._quotas.window_s))

    def fetched(self, size: int) -> int:
        """Call with the size of an answer's records. If the result is above 0, it must be sent
        without them.

        An exception: if nothing else was measured, the first batch alone is above the limit, and
        would always be. It is sent, and the wait comes after it (Apache Kafka never sends it).
        """
        wait_ms = self._request_time()
        quotas = self._quotas
        found = quotas.fetch.limits.find(self._user, self._client_id)
        self._fetch_throttle_ms = wait_ms
        if found is None:
            return wait_ms
        tag, limit = found
        rate, now_ms = quotas.fetch.of(tag), quotas.now.monotonic_ms
        first = rate.measure(now_ms)[0] <= 0
        rate.record(size, now_ms)
        bytes_wait_ms = rate.throttle_ms(limit, now_ms)
        if bytes_wait_ms:
            quotas.fetch.throttled += 1
        self._fetch_throttle_ms = max(wait_ms, bytes_wait_ms)
        if self._fetch_throttle_ms and not (first and not wait_ms):
            rate.record(-size, now_ms)
            return self._fetch_throttle_ms
        return 0

    # Changes to topics

    def admission(self, *, strict: bool) -> Callable[[int], None] | None:
        """Returns a function to call with a number of partitions before each change; it raises
        THROTTLING_QUOTA_EXCEEDED.

        Older versions of the requests do not know that code: there the change is made, and the
        client waits afterwards (`strict` False).
        """
        if self._quotas.mutation.limits.find(self._user, self._client_id) is None:
            return None
        return lambda partitions: self._mutate(partitions, strict=strict)

    def _mutate(self, partitions: int, *, strict: bool) -> None:
        quotas = self._quotas
        found = quotas.mutation.limits.find(self._user, self._client_id)
        if found is None:
            return
        tag, limit = found
        bucket, now_ms = quotas.mutation.of(tag), quotas.now.monotonic_ms
        if not strict:
            bucket.record(partitions, limit, now_ms)
        wait_ms = bucket.throttle_ms(limit, now_ms)
        if wait_ms:
            quotas.mutation.throttled += 1
            self._mutation_throttle_ms, self._mutated_ms = wait_ms, now_ms
        if not strict:
            return
        if wait_ms:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.record(partitions, limit, now_ms)

    def _mutation_wait_ms(self) -> int:
        passed_ms = self._quotas.now.monotonic_ms - self._mutated_ms
        return max(0, self._mutation_throttle_ms - passed_ms)

    # Time

    def _request_time(self) -> int:
        """Returns the throttle time by the percentage of the one thread that answers; it is never
        longer than a sample."""
        quotas = self._quotas
        if quotas.stopwatch is None or not quotas.request.limits:
            return 0
        spent = quotas.stopwatch() - self._started if self._spent is None else self._spent
        percent = spent * 100 / 1_000_000_000
        return min(self._recorded(quotas.request, percent), quotas.longest_request_throttle_ms)

    def _recorded(self, kind: Tracked[Rate], value: float) -> int:
        found = kind.limits.find(self._user, self._client_id)
        if found is None:
            return 0
        tag, limit = found
        rate, now_ms = kind.of(tag), self._quotas.now.monotonic_ms
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms)
        if wait_ms:
            kind.throttled += 1
        return wait_ms


def quotas_of(
    values: Mapping[str, Any], now: Now, stopwatch: Callable[[], int] | None
) -> ClientQuotas:
    """Returns the quotas according to the settings of a node."""
    return ClientQuotas(
        now,
        samples=values["quota.window.num"],
        sample_ms=values["quota.window.size.seconds"] * 1000,
        mutation_samples=values["controller.quota.window.num"],
        mutation_sample_ms=values["controller.quota.window.size.seconds"] * 1000,
        stopwatch=stopwatch,
    )


def admission(call: Call, *, strict_from: int) -> Callable[[int], None] | None:
    """As `Meter.admission`, for changes to topics; versions from `strict_from` on know the
    refusal."""
    if call.meter is None:
        return None
    return call.meter.admission(strict=call.version >= strict_from)
