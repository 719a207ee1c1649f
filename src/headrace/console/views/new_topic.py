"""How long a new topic keeps its messages, chosen in words. Pure."""

from __future__ import annotations

from headrace.console.query import Unreadable

DAY_MS = 86_400_000
DEFAULT, FOREVER = "", "-1"

# The choices of the form: the value of retention.ms and the words for it.
KEPT_FOR: tuple[tuple[str, str], ...] = (
    (DEFAULT, "as the cluster decides (usually 7 days)"),
    (str(3_600_000), "1 hour"),
    (str(DAY_MS), "1 day"),
    (str(7 * DAY_MS), "7 days"),
    (str(30 * DAY_MS), "30 days"),
    (str(365 * DAY_MS), "1 year"),
    (FOREVER, "for ever"),
)


def settings_from(kept: str, *, compact: bool) -> dict[str, str]:
    if kept not in dict(KEPT_FOR):
        raise Unreadable(f"{kept!r} is none of the times that are offered.")
    settings = {}
    if compact:
        # Both: old messages of a key go, and with a time given also what is older than that.
        settings["cleanup.policy"] = "compact" if kept in (DEFAULT, FOREVER) else "compact,delete"
    if kept != DEFAULT and not (compact and kept == FOREVER):
        settings["retention.ms"] = kept
    return settings
