"""The settings of a producer that only fills a topic for a test."""

from __future__ import annotations

from typing import Any

# librdkafka asks for the id of an idempotent producer half a second after its start, when it has
# found no broker at once. One that writes a few records and is not what is tested does without.
FILLS: dict[str, Any] = {"enable.idempotence": False}
