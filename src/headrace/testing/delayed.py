"""The delay service in the test's own process, on the clock that the test moves.

This is the service that `headrace start` runs as a child, not an imitation, on a thread. Its wall
clock is the broker's; its sessions, transactions and connections keep monotonic time, so none
expires when a test lets a year pass. Loaded only for `Broker(delay=True)`, because it needs the
client and what `headrace[delay]` installs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from headrace.services.delay.admin.admin_http import AdminHttp
from headrace.services.delay.queries import DelayQueries
from headrace.services.delay.service import DelayService
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.wire.contract.delay_topics import GROUP

LONGEST_STOP_S = 60
# A sent message can be listed within this time; a test should not wait a second for it.
LISTED_AFTER_MS = 20


class DelayOnThread:
    """Runs from its creation on; call `stop` before the broker stops."""

    def __init__(self, bootstrap: str, folder: Path, wall_ms: Callable[[], int]) -> None:
        self.service = DelayService(
            bootstrap,
            folder=folder,
            clock=wall_ms,
            instance="testing",
            limits=DelayLimits(overlay_age_ms=LISTED_AFTER_MS),
        )
        self._window = AdminHttp(DelayQueries(self.service.store, self.service.status), port=0)
        self.service.client_id = f"{GROUP}@{self._window.address}"
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-delay", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as failure:  # raised by `stop`, on the test's own thread
            self._failure = failure
            raise

    def stop(self) -> None:
        self.service.stop()
        self._thread.join(LONGEST_STOP_S)
        self._window.close()
        if self._thread.is_alive():
            raise RuntimeError("The delay service did not stop.")
        if self._failure is not None:
            raise RuntimeError("The delay service failed.") from self._failure
