"""The process in which a trigger's function runs, started by `function_target.py`.

Arguments: the number of the inherited socket, the memory limit in bytes (0: none), the function as
`package.module:function`. Speaks length-prefixed pickles with its parent, which is the only other
end of the socket; ends when that closes, also in the middle of a call.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import select
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from headrace.app.triggers.cloud_events import Event
from headrace.app.triggers.function_target import LENGTH

LONGEST_TRACE = 4_096


def main() -> None:
    door = socket.socket(fileno=int(sys.argv[1]))
    memory_bytes = int(sys.argv[2])
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    _end_with(door)
    try:
        function = _load(sys.argv[3])
    except Exception as problem:  # noqa: BLE001  any failure of the user's module is reported
        _send(door, f"{type(problem).__name__}: {problem}")
        return
    _send(door, None)
    while (events := _receive(door)) is not None:
        _send(door, _call(function, events))


def _end_with(door: socket.socket) -> None:
    """End this process when the parent dies, also while the function runs: its answer is not
    wanted."""

    def watch() -> None:
        poll = select.poll()
        poll.register(door, select.POLLRDHUP)
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _load(name: str) -> Callable[[list[Event]], Any]:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is not a function")
    function: Callable[[list[Event]], Any] = found
    return function


def _call(function: Callable[[list[Event]], Any], events: list[Event]) -> tuple[str, Any]:
    try:
        returned = function(events)
        return ("done", [_named(each) for each in returned or ()])
    except BaseException as problem:  # noqa: BLE001  also SystemExit: the worker outlives it
        trace = traceback.format_exc(limit=20)[-LONGEST_TRACE:]
        return ("failed", f"{type(problem).__name__}: {problem}\n{trace}")


def _named(entry: Any) -> tuple[str, str]:
    if isinstance(entry, tuple) and len(entry) == 2:
        return str(entry[0]), str(entry[1])
    return str(entry), "named by the function"


def _send(door: socket.socket, thing: Any) -> None:
    body = pickle.dumps(thing, protocol=5)
    door.sendall(LENGTH.pack(len(body)) + body)


def _receive(door: socket.socket) -> list[Event] | None:
    head = _read(door, LENGTH.size)
    if head is None:
        return None
    body = _read(door, LENGTH.unpack(head)[0])
    return None if body is None else pickle.loads(body)


def _read(door: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        part = door.recv(min(length - len(parts), 1_048_576))
        if not part:
            return None
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    main()
