"""Rates as Apache Kafka measures them for quotas: samples of a window, and a bucket of tokens.

`Rate` sums what was recorded in the last samples and divides by the time they cover, which is at
least that of all samples except the current one; so a burst after a pause is measured over ten
seconds, not over the moment that it took. `TokenBucket` is for changes to topics (KIP-599). Both
take the time as an argument, in monotonic milliseconds.
"""

from __future__ import annotations

from math import floor

LONGEST_THROTTLE_MS = 2**31 - 1


class Rate:
    """The recorded amount per second, over `samples` samples of `sample_ms` each.

    The sum is kept; all samples are looked at only when one of them may have become too old.
    """

    __slots__ = (
        "_samples",
        "_sample_ms",
        "_least_ms",
        "_kept",
        "_current",
        "_total",
        "_oldest_ms",
        "_look_ms",
    )

    def __init__(self, samples: int, sample_ms: int, *, least_ms: int | None = None) -> None:
        """`least_ms`: the least time to measure over, instead of all samples except one."""
        self._samples = samples
        self._sample_ms = sample_ms
        self._least_ms = least_ms
        self._kept: list[list[float]] = []  # start, last event, sum
        self._current = 0
        self._total = 0.0
        self._oldest_ms: float = 0  # start of the first sample
        self._look_ms: float = 0  # when the first sample is too old

    def record(self, value: float, now_ms: int) -> None:
        kept = self._kept
        if not kept:
            kept.append([now_ms, now_ms, 0.0])
            self._look_ms = 0
        sample = kept[self._current]
        if now_ms - sample[0] >= self._sample_ms:
            # One more than the samples: the oldest may have begun before the window.
            self._current = (self._current + 1) % (self._samples + 1)
            if self._current == len(kept):
                kept.append([now_ms, now_ms, 0.0])
            sample = kept[self._current]
            sample[0], sample[2] = now_ms, 0.0
            self._look_ms = 0
        sample[1] = now_ms
        sample[2] += value
        self._total += value

    def measure(self, now_ms: int) -> tuple[float, float]:
        """Returns the rate per second, and the milliseconds over which it was measured."""
        if now_ms >= self._look_ms:
            self._look(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        if self._least_ms is not None:
            elapsed_ms = max(elapsed_ms, self._least_ms)
            return self._total * 1000 / elapsed_ms, elapsed_ms
        lacking = self._samples - 1 - int(elapsed_ms // self._sample_ms)
        if lacking > 0:
            elapsed_ms += lacking * self._sample_ms
        elapsed_ms = max(elapsed_ms, 1)
        return self._total * 1000 / elapsed_ms, elapsed_ms

    def _look(self, now_ms: int) -> None:
        """Drop samples that are too old, and note when to do it again."""
        window_ms = self._samples * self._sample_ms
        self._total = 0.0
        self._oldest_ms = now_ms
        self._look_ms = now_ms + window_ms
        for sample in self._kept:
            if sample[1] <= now_ms - window_ms:
                sample[0] = sample[1] = now_ms
                sample[2] = 0.0
            self._total += sample[2]
            self._oldest_ms = min(self._oldest_ms, sample[0])
            self._look_ms = min(self._look_ms, sample[1] + window_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long nothing may be recorded for the rate to come down to its limit."""
        rate, elapsed_ms = self.measure(now_ms)
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * elapsed_ms)


class TokenBucket:
    """`rate` tokens are added each second, up to those of all samples; it may be overdrawn."""

    __slots__ = ("_seconds", "_tokens", "_filled_ms")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._seconds = samples * sample_ms / 1000
        self._tokens: float | None = None  # None: full, for any rate
        self._filled_ms = 0

    def record(self, value: float, rate: float, now_ms: int) -> None:
        self._tokens = min(rate * self._seconds, self.measure(rate, now_ms) - value)

    def measure(self, rate: float, now_ms: int) -> float:
        burst = rate * self._seconds
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens += rate * (now_ms - self._filled_ms) / 1000
        self._tokens = min(burst, self._tokens)
        self._filled_ms = now_ms
        return self._tokens

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Returns how long it will be overdrawn."""
        tokens = self.measure(rate, now_ms)
        return 0 if tokens >= 0 else _rounded(-tokens * 1000 / rate)


def _rounded(milliseconds: float) -> int:
    """Rounds as Java does: halves go up."""
    return min(LONGEST_THROTTLE_MS, floor(milliseconds + 0.5))
