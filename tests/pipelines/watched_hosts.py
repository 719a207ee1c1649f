"""Half an hour of logs and host metrics, the same for the same seed."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.pipelines import plain_logs as plain
from tests.pipelines.plain_tracking import MINUTE_MS, at_ms
from tests.pipelines.site import BEGIN_MS


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def log_lines(seed: int) -> list[plain.Record]:
    """Half an hour of three services, in about the order of their times; some come twice."""
    chance = Random(seed)
    found = []
    for number in range(700):
        at = BEGIN_MS + number * 30 * MINUTE_MS // 700 - chance.randrange(20_000)
        busy = 8 <= number // 24 % 16 <= 10
        level = "ERROR" if busy and chance.random() < 0.8 else chance.choice(["INFO", "WARN", None])
        if chance.random() < 0.01:
            level = "FATAL"
        message = chance.choice(
            [
                f"order {number} of 'ada' took {number}.5 ms from 10.0.0.{number % 9}",
                f"Failed\nTraceback\n  File x\nKeyError: {number}",
                f"id 6f9619ff-8b86-d011-b42d-00c04fc964{number % 90 + 10} at 0xdeadbeef",
            ]
        )
        service = chance.choice(["shop", "shop", "pay"])
        one: dict[str, Any] = {
            "id": f"f:{number}",
            "time": time_text(at),
            "service": service,
            "message": message,
        }
        one |= {"host": "h", "fields": {"n": str(number)}} | ({"level": level} if level else {})
        found += [one] * chance.choice([1, 1, 1, 2])
    return found


def samples(seed: int) -> list[plain.Record]:
    """Half an hour of three hosts, every ten seconds; quarters, whose sums are exact."""
    chance = Random(seed)
    found = []
    for step in range(180):
        at, now = BEGIN_MS + step * 10_000, step // 6
        for host in ("a", "b", "c"):
            if host == "b" and 8 <= now < 15:
                continue  # silent
            cpu = 95.0 if host == "a" and 3 <= now < 11 else 40.0
            load = 20.0 if host == "c" and now in (12, 13) else 1.0
            numbers = {
                "cpu_percent": cpu + chance.randrange(16) / 4,
                "load_1m": load + chance.randrange(4) / 4,
                'disk_used_percent{mount="/"}': 50.0 + now / 4,
            }
            time = time_text(at + chance.randrange(9_000))
            found.append({"id": f"{host}:{step}", "time": time, "host": host, "metrics": numbers})
    return found


def told(alerts: list[plain.Record], *names: str) -> list[tuple[Any, ...]]:
    return [
        tuple(at_ms(one) if name == "time" else one.get(name) for name in names) for one in alerts
    ]
