"""The wall clock of an app: due times are compared with it, and with nothing else.

Tests give one that they move. How long a call may take is measured with monotonic time elsewhere.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
