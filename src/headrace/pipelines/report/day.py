"""One day in a zone: from midnight to midnight, 23 to 25 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from headrace.pipelines.failure import PipelineError

LABELS = 5
FIRST_YEAR, LAST_YEAR = 1900, 2200


@dataclass(slots=True, frozen=True)
class Day:
    date: date
    zone: str

    @property
    def begin_s(self) -> int:
        return self._midnight(0)

    @property
    def end_s(self) -> int:
        return self._midnight(1)

    @property
    def seconds(self) -> int:
        return self.end_s - self.begin_s

    def _midnight(self, days_later: int) -> int:
        day = self.date + timedelta(days=days_later)
        return int(datetime.combine(day, time(), ZoneInfo(self.zone)).timestamp())

    def since_midnight(self, moment: datetime) -> float:
        return utc(moment).timestamp() - self.begin_s

    def clock(self, seconds: float) -> str:
        """Returns the time of day, so long after midnight."""
        moment = datetime.fromtimestamp(self.begin_s + seconds, UTC)
        return moment.astimezone(ZoneInfo(self.zone)).strftime("%H:%M")

    def moment(self, moment: datetime) -> str:
        return utc(moment).astimezone(ZoneInfo(self.zone)).strftime("%Y-%m-%d %H:%M:%S")

    def labels(self) -> list[str]:
        return [self.clock(self.seconds * n / (LABELS - 1)) for n in range(LABELS)]


def utc(moment: datetime) -> datetime:
    """Tables give moments with their zone, or in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parsed(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{text!r} is not a day such as 2026-01-31.") from None


def must_be_drawable(day: date) -> None:
    """Refuses a day outside the range: queries count nanoseconds since 1970, and a clock that was
    wrong writes such days."""
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise PipelineError(
            f"{day} is too far away to be drawn: give another --day, from {FIRST_YEAR} to "
            f"{LAST_YEAR}."
        )
