"""A Python function as a target, in worker processes with limits of memory and time.

The function is named in the operator's file as `package.module:function`. It is called with a list
of `Event` and returns nothing, or the ids of the events that failed; an exception fails the call.
Workers are separate processes, so a function that crashes, leaks or never returns costs one call:
over its time the worker is killed, over its memory it gets a MemoryError, and in both cases a new
one is started for the next call.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass
from typing import Any

from headrace.app.triggers.cloud_events import Event
from headrace.app.triggers.targets import Failure, TargetFailed

LENGTH = struct.Struct(">I")
# The result of one call of a function: ids and reasons, or one error.
LONGEST_ANSWER = 16 * 1024 * 1024
# A worker imports the function's module before its first call; the import may be slow.
START_TIMEOUT_S = 60


@dataclass(slots=True)
class Worker:
    process: Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def kill(self) -> None:
        self.writer.close()
        if self.process.returncode is None:
            self.process.kill()


class FunctionTarget:
    def __init__(
        self,
        function: str,
        *,
        workers: int = 1,
        memory_bytes: int | None = None,
        timeout_s: float = 60,
    ) -> None:
        module, _, name = function.partition(":")
        if not module or not name:
            raise ValueError(f"{function!r} is not of the form package.module:function")
        self._function = function
        self._memory_bytes = memory_bytes or 0
        self._timeout_s = timeout_s
        self._idle: list[Worker] = []
        self._places = asyncio.Semaphore(workers)

    async def call(self, events: list[Event]) -> list[Failure]:
        async with self._places:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                answer = await asyncio.wait_for(_ask(worker, events), self._timeout_s)
            except TimeoutError:
                await _end(worker)
                raise TargetFailed(
                    f"{self._function} ran over its {self._timeout_s:g} s", retriable=True
                ) from None
            except (asyncio.IncompleteReadError, ConnectionError):
                await _end(worker)
                raise TargetFailed(
                    f"the worker of {self._function} died (exit {worker.process.returncode})",
                    retriable=True,
                ) from None
            except BaseException:  # cancelled: its answer would be taken for that of the next call
                worker.kill()
                raise
            self._idle.append(worker)
        return _judge(answer)

    async def close(self) -> None:
        while self._idle:
            await _end(self._idle.pop())

    async def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headrace.app.triggers.function_worker",
                str(theirs.fileno()),
                str(self._memory_bytes),
                self._function,
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker = Worker(process, reader, writer)
        try:
            ready = await asyncio.wait_for(_receive(reader), START_TIMEOUT_S)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            await _end(worker)
            raise TargetFailed(
                f"the worker of {self._function} did not start", retriable=True
            ) from None
        if ready is not None:
            await _end(worker)
            raise TargetFailed(f"cannot load {self._function}: {ready}", retriable=False)
        return worker


async def _ask(worker: Worker, events: list[Event]) -> Any:
    body = pickle.dumps(events, protocol=5)
    worker.writer.write(LENGTH.pack(len(body)) + body)
    await worker.writer.drain()
    return await _receive(worker.reader)


async def _receive(reader: asyncio.StreamReader) -> Any:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > LONGEST_ANSWER:
        raise ConnectionError("the worker sent nonsense")
    return pickle.loads(await reader.readexactly(length))


async def _end(worker: Worker) -> None:
    worker.kill()
    await worker.process.wait()


def _judge(answer: tuple[str, Any]) -> list[Failure]:
    kind, said = answer
    if kind == "failed":
        raise TargetFailed(str(said), retriable=True)
    return [Failure(id, reason) for id, reason in said]
