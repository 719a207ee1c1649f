"""FROM..TO of `--history`: two moments in UTC, either of them left out for "as far as there is"."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.pipelines.failure import PipelineError


@dataclass(slots=True)
class Span:
    """From `from_ms` on, up to but without `to_ms`; milliseconds since 1970."""

    from_ms: int | None
    to_ms: int | None

    def options(self) -> dict[str, str]:
        """Returns options for Spark's Kafka source: the times of records, which Spark turns into
        offsets."""
        options = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        if self.from_ms is not None:
            options["startingTimestamp"] = str(self.from_ms)
            options["startingOffsetsByTimestampStrategy"] = "latest"  # nothing so new: no rows
        if self.to_ms is not None:
            options["endingTimestamp"] = str(self.to_ms)
        return options


def parse(text: str) -> Span:
    first, dots, last = text.partition("..")
    if not dots:
        raise PipelineError(f"{text!r} is not FROM..TO, such as 2026-01-01..2026-02-01.")
    span = Span(_end(first), _end(last))
    if span.from_ms is not None and span.to_ms is not None and span.from_ms >= span.to_ms:
        raise PipelineError(f"{text}: the end does not come after the beginning.")
    return span


def _end(text: str) -> int | None:
    return moment(text) if text.strip() else None


def moment(text: str) -> int:
    """Milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise PipelineError(
            f"{text!r} is not a time: write 2026-01-31 or 2026-01-31T12:00:00Z."
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    milliseconds = int(found.timestamp() * 1000)
    if milliseconds < 0:
        raise PipelineError(f"{text}: no record is older than 1970.")
    return milliseconds
