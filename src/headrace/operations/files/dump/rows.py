"""A row of a dump: named values, shown as text or as JSON, and whether it reports damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(slots=True)
class Row:
    """One batch, record, index entry or line of a file."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    damage: str | None = None  # what is wrong with this part of the file
    indent: int = 0

    def as_object(self) -> dict[str, Any]:
        shown = {"kind": self.kind, **self.values}
        return shown | ({"damage": self.damage} if self.damage else {})

    def as_text(self) -> str:
        """`batch  first-offset 0  position 0 ...`; missing values are left out."""
        parts = [
            f"{name.replace('_', '-')} {value}"
            for name, value in self.values.items()
            if value is not None
        ]
        if self.damage:
            parts.append(f"DAMAGED: {self.damage}")
        return "    " * self.indent + "  ".join([self.kind, *parts])


def moment(timestamp_ms: int) -> str | None:
    """A timestamp as text for people; None if a record has none."""
    if timestamp_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
