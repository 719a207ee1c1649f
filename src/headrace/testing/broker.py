"""A real broker in the test's own process: real sockets, real files, a clock the test moves.

This is the server that `headrace start` runs, not an imitation: on a thread, on a free port, in a
temporary folder that is removed with it. Only the wall clock (timestamps, retention, due times)
moves with `advance`; sessions, requests and connections keep their deadlines in monotonic time.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.installation import how_to_add
from headrace.node.process.clock import MovableClock
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import load_settings

if TYPE_CHECKING:
    from headrace.testing.delayed import DelayOnThread

LONGEST_STOP_SECONDS = 60
# Kafka's 50 partitions of each spread groups and transactions over many brokers. Here there is one
# broker, and a test would pay for a hundred folders of files that it does not use.
ONE_COORDINATOR_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Broker:
    """Use as a context manager, or call `start` and `stop`.

    `data` keeps the files in your folder instead of a temporary one, so that a second Broker can
    continue with them. `settings` are Kafka's broker settings, such as `{"num.partitions": 4}`.
    With `delay` the delay service runs beside it, on the same clock.
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        delay: bool = False,
    ) -> None:
        self.clock = MovableClock()
        self.data: Path | None = None
        self._given_data = data
        self._port = port
        given = {name: str(value) for name, value in (settings or {}).items()}
        self._settings = ONE_COORDINATOR_PARTITION | given
        self._with_delay = delay
        if delay:  # no other member joins its group, so none is waited for
            self._settings.setdefault("group.initial.rebalance.delay.ms", "0")
        self._delay: DelayOnThread | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        if self._server is None:
            raise RuntimeError("The broker is not running: use `with Broker() as broker`.")
        return self._server.address

    def start(self) -> Broker:
        """Start the broker; `bootstrap` is then its address."""
        if self._server is not None:
            raise RuntimeError("The broker is running already.")
        given = self._given_data
        self.data = Path(given if given is not None else tempfile.mkdtemp(prefix="headrace-"))
        server = Server(
            load_settings(
                data=str(self.data),
                listen=f"127.0.0.1:{self._port}",
                overrides=self._settings,
            ),
            clock=self.clock,
        )
        server.open(own_process=False)
        self._server = server
        self._thread = threading.Thread(target=server.serve, name="headrace-broker", daemon=True)
        self._thread.start()
        if self._with_delay:
            self._start_delay()
        return self

    def _start_delay(self) -> None:
        try:
            from headrace.testing.delayed import DelayOnThread

            self._delay = DelayOnThread(self.bootstrap, self._delay_folder(), self.clock.wall_ms)
        except ModuleNotFoundError as missing:
            self.stop()
            raise RuntimeError(
                how_to_add("Broker(delay=True) needs", missing.name, "delay")
            ) from missing

    def _delay_folder(self) -> Path:
        """The folder beside the data, as for a node."""
        assert self.data is not None
        return self.data.with_name(self.data.name + "-delay")

    def stop(self) -> None:
        """Stop in an orderly way; temporary files are removed."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        delay, self._delay = self._delay, None
        try:
            if delay is not None:
                delay.stop()
        finally:
            self._server = self._thread = None
            server.stop()
            thread.join(LONGEST_STOP_SECONDS)
        if thread.is_alive():
            raise RuntimeError(f"The broker did not stop. Its thread is at:\n{_stack_of(thread)}")
        if self._given_data is None and self.data is not None:
            shutil.rmtree(self.data, ignore_errors=True)
            shutil.rmtree(self._delay_folder(), ignore_errors=True)

    def restart(self) -> None:
        """Stop and start again on the same files and port."""
        if self.data is None:
            raise RuntimeError("The broker was never started.")
        self._port = int(self.bootstrap.rpartition(":")[2])
        temporary, self._given_data = self._given_data is None, self.data
        self.stop()
        self.start()
        if temporary:
            self._given_data = None

    def move_clock(self, by: timedelta) -> None:
        """Move the wall clock: new timestamps, retention and delayed messages follow it."""
        self.clock.moved_by_ms += by // timedelta(milliseconds=1)

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the wall clock forward: `broker.advance(minutes=30)`."""
        self.move_clock(
            timedelta(
                days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
            )
        )

    def now(self) -> datetime:
        """The wall clock as the broker reads it, in UTC."""
        return datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _stack_of(thread: threading.Thread) -> str:
    """The present stack of a thread, for a report; empty if it has just ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
