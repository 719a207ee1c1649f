"""How long a broker is warmed up before it is measured: until it stops getting cheaper.

A JVM compiles what it runs often; under one-record requests Apache Kafka 4.3 was seen to get
cheaper for about 20 s on two cores (1,250 us per request in the first second, 60 us after twenty).
A fixed time would be too short on a busy machine and too long for a broker that needs none, so both
brokers get the same rule: at least 12 s, then stop when no second has beaten the cheapest one by
5 % for 6 s, or when a limit is reached. Shorter rules stopped on a plateau of the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Measurable(Protocol):
    """A broker, or several."""

    def processor_seconds(self) -> float: ...


STEP_S = 1.0
LEAST_S = 12.0
PATIENCE_S = 6.0
MARGIN = 0.95
LIMIT_S = 40.0


def until_steady(
    broker: Measurable,
    work: Callable[[float], float],
    *,
    limit_s: float = LIMIT_S,
    limit_amount: float = float("inf"),
) -> float:
    """Run `work(seconds)`, which tells how much it did, until its cost is steady; the seconds."""
    begin = time.perf_counter()
    best, best_at, amount = float("inf"), begin, 0.0
    while (now := time.perf_counter()) - begin < limit_s and amount < limit_amount:
        if now - begin > LEAST_S and now - best_at > PATIENCE_S:
            break
        used = broker.processor_seconds()
        done = work(min(STEP_S, limit_s))
        amount += done
        cost = (broker.processor_seconds() - used) / done
        if cost < best * MARGIN:
            best, best_at = cost, time.perf_counter()
    return time.perf_counter() - begin
