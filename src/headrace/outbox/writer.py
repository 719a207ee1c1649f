"""Writing to the outbox: `outbox.send(db, topic, value)` is a row in the caller's transaction.

Nothing is sent before the commit, and everything that was committed is sent, by the relay
(`headrace outbox relay`). Rows of one key are sent in the order in which their transactions locked
the rows that they changed, so lock the business row first (UPDATE it, or SELECT ... FOR UPDATE),
then send.

A message that a broker would refuse later is refused here, before the transaction commits.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Engine, MetaData, event
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace.app.decoding import Codec, encoded
from headrace.client.connection import connected
from headrace.client.delay.schedules import When, cancelling, delayed, require_understood
from headrace.client.errors import ClientError, Misuse
from headrace.client.records import GivenHeaders, HeaderList, Outgoing, header_list
from headrace.outbox.handles import Handle, handle_of, run_sync_of
from headrace.services.outbox import databases, schema
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.relay import Relay, Settings
from headrace.services.outbox.rows import (
    LONGEST_MESSAGE_ID,
    NotARecord,
    headers_to,
    require_topic,
    shard_of,
    size_bytes,
)
from headrace.services.outbox.schema import Facts, OutboxError
from headrace.wire.contract import durations
from headrace.wire.contract.headers import CONFIRM_WITHIN

log = logging.getLogger(__name__)

# A topic's default limit is 1,048,588 bytes (max.message.bytes).
LARGEST_BYTES = 1_000_000
INSERT = (
    "INSERT INTO headrace_outbox (shard, topic, message_key, payload, headers, message_id)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)

# shard or None for any, topic, key, payload, headers, message id
Values = tuple[str, bytes | None, bytes | None, str | None, str | None]


class Outbox:
    """Writes messages in your transactions. Make one per database; threads may share it."""

    def __init__(
        self,
        engine: Engine | AsyncEngine | None = None,
        bootstrap: str | None = None,
        *,
        codec: Codec | None = None,
        format: Literal["headrace", "debezium"] = "headrace",
        largest_bytes: int = LARGEST_BYTES,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`engine` is for `create`, both are for `relaying`; `send` needs neither.

        `format="debezium"` adds the header by which consumers of Debezium's outbox router identify
        a message: `id`, a UUID if none is given.
        """
        if format not in ("headrace", "debezium"):
            raise ValueError('format is "headrace" or "debezium".')
        self._format = format
        self.engine, self.bootstrap = engine, bootstrap
        self._codec, self._largest_bytes, self._wall_ms = codec, largest_bytes, wall_ms
        self._facts: Facts | None = None
        self._any_shard = itertools.count()

    def send(
        self,
        db: Any,
        topic: str,
        value: Any = None,
        *,
        key: bytes | str | None = None,
        headers: GivenHeaders | None = None,
        delay: timedelta | str | None = None,
        deliver_at: datetime | int | str | None = None,
        id: str | None = None,
        confirm_within: timedelta | str | None = None,
    ) -> Awaitable[None]:
        """Write a message in the transaction of `db`; await it if `db` is one for asyncio.

        Values go as in handlers: models, dataclasses, dicts as JSON, str and bytes as they are.
        `id` becomes the message's id; with `delay` or `deliver_at` it names the schedule. With
        `confirm_within` it is sent again, a few times, if no consumer confirms it in time.
        """
        if confirm_within is not None:
            if delay is not None or deliver_at is not None:
                raise OutboxError(
                    "confirm_within is not for delayed messages: leave delay and deliver_at away."
                )
            asked = (CONFIRM_WITHIN, durations.write(_confirmation_ms(confirm_within)).encode())
            headers = [*_headers(headers), asked]
        _require_kinds(topic, key, id)
        try:
            values = self._values(topic, value, key, headers, delay, deliver_at, id)
        except UnicodeEncodeError as half:
            raise OutboxError(f"A message is not text that can be sent: {half}.") from half
        return self._write_in(db, values)

    def cancel(
        self, db: Any, topic: str, id: str, *, key: bytes | str | None = None
    ) -> Awaitable[None]:
        """Cancel the delayed message `id` in the transaction of `db`; await it if `db` is async.

        `key` is the key that the message was sent with: an id is known within its partition. The
        cancel takes effect after the commit, when the relay has sent it. If the message is due
        before that, it is delivered; its handler has to check whether it still applies. A cancel
        after the `send` of the same key, in this transaction or a later one, takes effect after it.
        """
        _require_kinds(topic, key, id)
        try:
            record = cancelling(topic, id, key.encode() if isinstance(key, str) else key, None)
            require_understood(record.headers)
            self._require_sendable(record, None)
        except (ClientError, ValueError) as refusal:  # ValueError: half a surrogate pair
            raise OutboxError(str(refusal)) from refusal
        headers = headers_to(record.headers)
        return self._write_in(db, (record.topic, record.key, None, headers, None))

    # ---- the tables

    def create(self, shards: int | None = None) -> None:
        """Create missing tables, as `headrace outbox init` does."""
        if not isinstance(self.engine, Engine):
            raise OutboxError("To make its tables, an Outbox needs an Engine (create_engine).")
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            self._facts = schema.create(db, shards)

    @staticmethod
    def add_to(metadata: MetaData, shards: int | None = None) -> None:
        """Let `metadata.create_all` create the outbox's tables too."""

        def made(target: MetaData, connection: Connection, **_: Any) -> None:
            schema.create(connection, shards)

        event.listen(metadata, "after_create", made)

    # ---- a relay beside the program

    @contextmanager
    def relaying(self, settings: Settings | None = None) -> Iterator[Relay]:
        """Relay rows in the background while the block runs; its end waits for rows under way.

        For small programs and tests. A relay of its own (`headrace outbox relay`) goes on when the
        program ends; both may run at once, they share the work. A relay that had to give up is
        logged at once, and the end of the block raises why.
        """
        if self.engine is None:
            raise OutboxError("To relay, an Outbox needs an engine.")
        engine = engine_for(self.engine.url.render_as_string(hide_password=False))
        relay = Relay(engine, connected(self.bootstrap, None), settings)
        relay.store.sound()  # else only the relay's thread would find out that tables are missing
        gave_up: list[Exception] = []

        def run() -> None:
            try:
                relay.run()
            except Exception as reason:
                log.exception("the relay beside this program has ended; rows wait")
                gave_up.append(reason)

        thread = threading.Thread(target=run, name="headrace-outbox")
        thread.start()
        try:
            yield relay
        finally:
            relay.stop()
            thread.join()
            engine.dispose()
        if gave_up:
            raise OutboxError(f"The relay has ended, and rows wait: {gave_up[0]}") from gave_up[0]

    # ---- one message

    def _values(
        self,
        topic: str,
        value: Any,
        key: bytes | str | None,
        headers: GivenHeaders | None,
        delay: timedelta | str | None,
        deliver_at: datetime | int | str | None,
        id: str | None,
    ) -> Values:
        record: Outgoing[bytes, bytes] = Outgoing(
            topic,
            encoded(value, topic=topic, codec=self._codec),
            key.encode() if isinstance(key, str) else key,
            _headers(headers),
        )
        message_id = id
        if self._format == "debezium":
            message_id = id or str(uuid.uuid4())
            record.headers.insert(0, ("id", message_id.encode()))
        if delay is not None or deliver_at is not None:
            record, message_id = self._delayed(record, delay, deliver_at, id), None
        self._require_sendable(record, message_id)
        return record.topic, record.key, record.value, headers_to(record.headers), message_id

    def _delayed(
        self,
        record: Outgoing[bytes, bytes],
        delay: timedelta | str | None,
        deliver_at: datetime | int | str | None,
        id: str | None,
    ) -> Outgoing[bytes, bytes]:
        """Replace a delay by a moment: it counts from now, not from when the relay sends the
        message."""
        when: When = {"id": id, "deliver_at": deliver_at, "delay": delay}
        try:
            if delay is not None and deliver_at is None:
                when = {"id": id, "deliver_at": self._wall_ms() + _milliseconds(delay)}
            return delayed(record, when)
        except (ClientError, ValueError) as refusal:
            raise OutboxError(str(refusal)) from refusal

    def _require_sendable(self, record: Outgoing[bytes, bytes], message_id: str | None) -> None:
        try:
            require_topic(record.topic)
        except NotARecord as refusal:
            raise OutboxError(f"{refusal}.") from refusal
        size = size_bytes(record.key, record.value, record.headers)
        if size > self._largest_bytes:
            raise OutboxError(
                f"A message of {size:,} bytes for {record.topic} is larger than the outbox takes "
                f"({self._largest_bytes:,}): send less, or raise largest_bytes and the topic's "
                "max.message.bytes."
            )
        if message_id is None:
            return
        if not 0 < len(message_id) <= LONGEST_MESSAGE_ID or "\0" in message_id:
            raise OutboxError(f"An id has 1 to {LONGEST_MESSAGE_ID} characters, and no NUL.")
        message_id.encode()  # raises UnicodeEncodeError, which `send` explains

    def _write_in(self, db: Any, values: Values) -> Awaitable[None]:
        run_sync = run_sync_of(db)
        if run_sync is not None:
            awaited: Awaitable[None] = run_sync(self._write, values)
            return awaited
        self._write(db, values)
        return _DONE

    def _write(self, db: Any, values: Values) -> None:
        handle = handle_of(db)
        facts = self._facts or self._look(handle)
        self._pass_gate(handle)
        key = values[1]
        shard = next(self._any_shard) % facts.shards if key is None else shard_of(key, facts.shards)
        handle.run(INSERT, (shard, *values))

    def _pass_gate(self, handle: Handle) -> None:
        """Take the lock before each row: MariaDB releases it when a savepoint is rolled back."""
        gates = databases.of(handle.dialect).GATE
        if gates and not any(handle.query(gate) for gate in gates):
            raise OutboxError(databases.NO_GATE)

    def _look(self, handle: Handle) -> Facts:
        """Once per program: check the tables, and read the number of shards."""
        try:
            rows = handle.query(schema.READ_META)
        except Exception as failure:  # each driver has its own class; all name the table
            if "headrace_outbox_meta" in str(failure):
                raise schema.missing() from failure
            raise
        found = schema.read(rows)
        if found is None:
            raise schema.missing()
        self._facts = found
        return found


class _Done:
    """The result of a plain `send`: awaiting it does nothing."""

    def __await__(self) -> Any:
        return iter(())


_DONE: Awaitable[None] = _Done()


def _require_kinds(topic: object, key: object, id: object) -> None:
    if not isinstance(topic, str):
        raise OutboxError(f"A topic is text, not {type(topic).__name__}.")
    if not isinstance(key, str | bytes | None):
        raise OutboxError(f"A key is text or bytes, not {type(key).__name__}.")
    if not isinstance(id, str | None):
        raise OutboxError(f"An id is text, not {type(id).__name__}.")


def _headers(given: GivenHeaders | None) -> HeaderList:
    try:
        found = header_list(given)
    except Misuse as refusal:
        raise OutboxError(str(refusal)) from refusal
    for name, value in found:
        if not isinstance(name, str):
            raise OutboxError(f"A header's name is text, not {type(name).__name__}.")
        if not isinstance(value, bytes | None):
            raise OutboxError(f"A header is text or bytes, not {type(value).__name__}.")
    return found


def _confirmation_ms(within: timedelta | str) -> int:
    try:
        found = _milliseconds(within)
    except ValueError as wrong:
        raise OutboxError(f"confirm_within: {wrong}.") from wrong
    if not 0 < found <= durations.LONGEST_DELAY_MS:
        raise OutboxError("confirm_within is more than 0 and at most ten years.")
    return found


def _milliseconds(delay: timedelta | str) -> int:
    if isinstance(delay, timedelta):
        return -(-delay // timedelta(milliseconds=1))  # rounded up: never early
    return durations.parse(delay)
