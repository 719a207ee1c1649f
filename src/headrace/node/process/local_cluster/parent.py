"""The parent of a cluster on this machine: performs the effects of `supervision.py`.

It starts the nodes as children, prints their output with their names before it, and forwards
signals in order. It serves no clients and holds no data: if it dies, its children see the end of
their sockets and stop cleanly. One thread, no asyncio; it sleeps until a child or a signal has
something.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, assert_never

from headrace.foreign_text import escaped
from headrace.node.process.local_cluster.child import Line, Order
from headrace.node.process.local_cluster.child_process import PROGRAM, start_child
from headrace.node.process.local_cluster.supervision import (
    CANNOT_START,
    UNUSABLE_DATA,
    AllReady,
    Begin,
    Effect,
    Ended,
    Event,
    Finished,
    Kill,
    Ready,
    SayEnded,
    SayLeftOut,
    Start,
    StopAsked,
    Supervision,
    TellDeath,
    Terminate,
    Tick,
)
from headrace.node.process.settings.settings import CannotStart, UnusableData

LONGEST_LINE = 64 * 1024
COLOURS = (36, 35, 33, 32, 34, 31)


class LocalCluster(Protocol):
    """The requests of the parent to the cluster that it runs (`cluster.py`)."""

    @property
    def orders(self) -> Mapping[int, Order]: ...

    def prepare(self, node: int) -> None: ...

    @property
    def former_min_in_sync(self) -> int | None: ...

    def min_in_sync_is_raised(self) -> None: ...


class ClusterFailed(Exception):
    """A node could not start; the message names it and the reason."""


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    line: Line
    output: int  # the end of a pipe that its standard output and error go to
    rest: bytes = b""


class Parent:
    def __init__(
        self,
        supervision: Supervision,
        cluster: LocalCluster,
        *,
        show: Callable[[dict[int, dict[str, Any]]], None],
        write: Callable[[str], None],
        program: Sequence[str] = PROGRAM,
        coloured: bool = False,
    ) -> None:
        """`show` gets what each node reported about itself when all were ready; `write` a line of
        text."""
        self._supervision = supervision
        self._cluster = cluster
        self._show = show
        self._write = write
        self._program = program
        self._coloured = coloured
        self._processes: dict[int, _Process] = {}
        self._about: dict[int, dict[str, Any]] = {}
        self._refusals: dict[int, str] = {}
        self._not_started: list[tuple[int, int]] = []  # folders that cannot be used now, exit codes
        self._signals = 0
        self._finished: Finished | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Until all have stopped. ClusterFailed: one of them cannot start."""
        bell, ours = socket.socketpair()
        ours.setblocking(False)
        bell.setblocking(False)
        before = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        woken = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._bell_rang(ours))
        try:
            self._step(Begin())
            while self._finished is None:
                self._turn()
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._end_all()
            self._selector.close()
            bell.close()
            ours.close()
        failed = self._finished.failed
        if failed is not None:
            why = self._refusals.get(failed, "it gave no reason.")
            raise ClusterFailed(f"Broker {failed} cannot start: {why}")

    def _signalled(self, *_: object) -> None:
        self._signals += 1

    def _bell_rang(self, bell: socket.socket) -> None:
        with suppress(BlockingIOError):
            bell.recv(4096)

    def _turn(self) -> None:
        at_ms = self._supervision.next_ms()
        wait = None if at_ms is None else max(0, at_ms - _now_ms()) / 1000
        wait = 0 if self._not_started else wait
        for key, _ in self._selector.select(wait):
            key.data()
        while self._signals:
            self._signals -= 1
            self._announce_stop()
            self._step(StopAsked())
        while self._not_started:
            self._step(Ended(*self._not_started.pop()))
        for node, process in list(self._processes.items()):
            code = process.popen.poll()
            if code is not None:
                self._gone(node, process)
                self._step(Ended(node, code))
        self._step(Tick())

    def _step(self, event: Event) -> None:
        for effect in self._supervision.step(event, _now_ms()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Start():
                self._start(effect.node)
            case Terminate():
                self._terminate(effect)
            case Kill():
                self._processes[effect.node].popen.kill()
            case TellDeath():
                self._tell_death(effect)
            case SayEnded():
                self._say_ended(effect)
            case SayLeftOut():
                self._say_left_out(effect.node)
            case AllReady():
                self._show(self._about)
                self._raise_min_in_sync()
            case Finished():
                self._finished = effect
            case _:
                assert_never(effect)

    def _announce_stop(self) -> None:
        """The nodes stop one after the other: those that still run must not warn about it."""
        for process in self._processes.values():
            process.line.tell({"cluster_stops": True})

    def _terminate(self, effect: Terminate) -> None:
        process = self._processes[effect.node]
        if effect.at_once:
            process.line.tell({"stop": "at once"})
        process.popen.terminate()

    def _start(self, node: int) -> None:
        try:
            self._cluster.prepare(node)
        except CannotStart as refusal:
            # It must not run there: it could begin another cluster in an empty folder.
            self._refusals[node] = str(refusal)
            self._write(self._labelled(node, str(refusal)))
            is_damage = isinstance(refusal, UnusableData)
            self._not_started.append((node, UNUSABLE_DATA if is_damage else CANNOT_START))
            return
        output, input_ = os.pipe()
        started = start_child(self._cluster.orders[node], input_, self._program)
        os.close(input_)
        os.set_blocking(output, False)
        started.line.socket.setblocking(False)
        process = _Process(started.popen, started.line, output)
        self._processes[node] = process
        for file, heard in ((started.line.socket, self._heard), (output, self._said)):
            self._selector.register(file, selectors.EVENT_READ, partial(heard, node, process))

    def _heard(self, node: int, process: _Process) -> None:
        messages = process.line.hear()
        if messages is None:
            self._selector.unregister(process.line.socket)
            return
        for message in messages:
            if "ready" in message:
                self._about[node] = message["ready"]
                self._step(Ready(node, message["ready"].get("broker_epoch", -1)))
            if "min_in_sync" in message:
                self._cluster.min_in_sync_is_raised()
            if "refused" in message:
                self._refusals[node] = message["refused"]
                if node in self._about:  # it has run before, and is tried again
                    self._write(self._labelled(node, message["refused"]))

    def _said(self, node: int, process: _Process) -> bool:
        """Whole lines, each with the node's name before it. False: there was nothing to read."""
        try:
            data = os.read(process.output, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(process.output)
            return False
        *lines, process.rest = (process.rest + data).split(b"\n")
        if len(process.rest) > LONGEST_LINE:
            lines, process.rest = [*lines, process.rest], b""
        for line in lines:
            self._write(self._labelled(node, line.decode(errors="backslashreplace")))
        return True

    def _labelled(self, node: int, text: str) -> str:
        name = f"broker {node} |"
        if self._coloured:
            name = f"\x1b[{COLOURS[node % len(COLOURS)]}m{name}\x1b[0m"
        return f"{name} {escaped(text)}"

    def _gone(self, node: int, process: _Process) -> None:
        """Read the last messages of an ended process, then close what belongs to it."""
        self._heard_last(node, process)
        for file in (process.line.socket, process.output):
            with suppress(KeyError, ValueError):
                self._selector.unregister(file)
        process.line.socket.close()
        os.close(process.output)
        del self._processes[node]

    def _heard_last(self, node: int, process: _Process) -> None:
        registered = self._selector.get_map()
        if process.line.socket in registered:
            self._heard(node, process)
        # Do not read to the pipe's end: a process that the node has started may keep it open.
        while process.output in registered and self._said(node, process):
            pass
        if process.rest:
            self._write(self._labelled(node, process.rest.decode(errors="backslashreplace")))

    def _say_ended(self, effect: SayEnded) -> None:
        how = f"ended with {effect.code}"
        if effect.code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-effect.code).name}"
        rest = (effect.again_in_ms or 0) / 1000
        self._write(self._labelled(effect.node, f"{how}; it is started again in {rest:g} s"))

    def _say_left_out(self, node: int) -> None:
        why = self._refusals.get(node, "it gave no reason.")
        self._write(
            self._labelled(
                node,
                f"IS NOT STARTED, its data folder is damaged: {why} The other brokers run without "
                "it. Repair the folder or move it away, then start the cluster again.",
            )
        )

    def _raise_min_in_sync(self) -> None:
        """Ask every node to raise the minimum; the active controller among them writes it."""
        former = self._cluster.former_min_in_sync
        for process in self._processes.values() if former is not None else ():
            process.line.tell({"raise_min_in_sync": {"from": former}})

    def _tell_death(self, effect: TellDeath) -> None:
        """Any living node can pass it on to the controller."""
        for process in self._processes.values():
            process.line.tell({"died": {"node": effect.node, "broker_epoch": effect.broker_epoch}})

    def _end_all(self) -> None:
        """Only after an exception: whatever still runs sees its socket close, and stops."""
        for process in self._processes.values():
            process.line.socket.close()
            os.close(process.output)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
