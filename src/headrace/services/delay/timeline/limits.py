"""Bounds of one partition's timeline, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DelayLimits:
    # One plan, with what it has to do at once: a transaction of tens of milliseconds.
    transaction_records: int = 20_000
    transaction_bytes: int = 32 * 1024 * 1024
    # Taken and not committed: when it is so much or so old, a plan moves the position, so that
    # the store keeps pace and a restart reads little again.
    overlay_records: int = 20_000
    overlay_bytes: int = 32 * 1024 * 1024
    overlay_age_ms: int = 1_000
    # A record still pending so long after it was taken moves to the far topic, and the intake
    # before it can be deleted.
    far_after_ms: int = 3_600_000
    far_records: int = 2_000  # moved by one plan
    sample_ms: int = 60_000  # how finely the intake's age is known
