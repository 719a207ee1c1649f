"""`once=Redis(url, keep="24h")`: the memory of handled messages is in Redis.

A message is claimed before the handler runs and marked as done after it; a failed attempt releases
the claim. This is weak, and good for notices, not for money: a crash between the handler's effect
and the mark lets the message run again, and Redis itself may forget. It prevents the common case:
the same message again after a rebalance, a redelivery, a double send.

A claim expires if its holder dies (`claim`, renewed while the handler runs). An unreachable Redis
is not a failure of the message: `TryLater`.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import RedisError

from headrace.app.once.memory import OnceAttempt
from headrace.app.once.message_ids import former_id, may_be_known_formerly, was_this
from headrace.app.retry import Duration, TryLater, milliseconds

DONE = b"done"
# An error of Redis is never a failure of the message.
AWAY = (RedisError, OSError)
TIMEOUTS: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 5}

# Change the key only while the claim is still ours: another worker may hold it after ours expired.
IF_MINE = "if redis.call('get', KEYS[1]) == ARGV[1] then "
MARK = IF_MINE + "redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end"
RENEW = IF_MINE + "redis.call('pexpire', KEYS[1], ARGV[2]) end"
DROP = IF_MINE + "redis.call('del', KEYS[1]) end"


class Redis:
    """Handles each message once, as long as Redis keeps its ids: for effects outside a database."""

    def __init__(
        self,
        url: str,
        *,
        keep: Duration = "24h",
        claim: Duration = "1m",
        prefix: str = "headrace:once",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._keep_ms = milliseconds(keep, "keep")
        self._claim_ms = milliseconds(claim, "claim")
        self._prefix = prefix
        self._now_ms = now_ms
        self._topic_ids_since_ms: dict[str, int] = {}  # by group
        # Neither connects before its first use.
        self._client = redis.Redis.from_url(url, **TIMEOUTS)
        self._async_client = redis.asyncio.Redis.from_url(url, **TIMEOUTS)

    def refusal(self, *, asynchronous: bool) -> str | None:
        return None

    def prepare(self, group: str) -> None:
        """Does nothing: keys need no preparation."""

    def close(self) -> None:
        """Close; connections of the asyncio client end with the loop that they were opened on."""
        self._client.close()

    def _key(self, group: str, message_id: str) -> str:
        """A colon in a group's name is written as %3A: `a:b` is not the group `a`."""
        of_group = group.replace("%", "%25").replace(":", "%3A")
        return f"{self._prefix}:{of_group}:{message_id}"

    # ---- ids of older workers, which hold no topic id (`message_ids.py`)

    def _since_key(self, group: str) -> str:
        return f"{self._prefix}.topics-in-ids-since:{group}"

    def _former_key(self, group: str, message_id: str, written_at_ms: int | None) -> str | None:
        """The key of an older worker's mark for this message; None if it cannot have one."""
        older = former_id(message_id)
        since_ms = self._topic_ids_since_ms[group]
        if older is None or not may_be_known_formerly(written_at_ms, since_ms):
            return None
        return self._key(group, older)

    def _is_this(self, mark: Any, left_ms: int, written_at_ms: int | None) -> bool:
        """Whether the mark is for this record. A mark has no time of its own, only the time that it
        is still kept."""
        handled_at_ms = self._now_ms() - self._keep_ms + max(left_ms, 0)
        return mark == DONE and was_this(written_at_ms, handled_at_ms)

    # ---- plain functions

    def _was_known(self, group: str, message_id: str, written_at_ms: int | None) -> bool:
        if group not in self._topic_ids_since_ms:
            key = self._since_key(group)
            self._client.set(key, self._now_ms(), nx=True)
            self._topic_ids_since_ms[group] = _number(self._client.get(key))
        key_before = self._former_key(group, message_id, written_at_ms)
        if key_before is None:
            return False
        left_ms: Any = self._client.pttl(key_before)
        return self._is_this(self._client.get(key_before), left_ms, written_at_ms)

    @contextmanager
    def attempt(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> Iterator[OnceAttempt]:
        key, mine = self._key(group, message_id), secrets.token_hex(16)
        with _later_if_away():
            taken = self._client.set(key, mine, nx=True, px=self._claim_ms)
            holder = None if taken else self._client.get(key)
            if taken and self._was_known(group, message_id, written_at_ms):
                self._client.set(key, DONE, px=self._keep_ms)
                taken, holder = None, DONE
        if not taken:
            _require_done(holder)
            yield OnceAttempt(duplicate=True)
            return
        over = threading.Event()
        threading.Thread(target=self._renew, args=(key, mine, over), daemon=True).start()
        try:
            yield OnceAttempt(duplicate=False)
        except BaseException:
            with suppress(*AWAY):  # the claim expires by itself
                self._client.eval(DROP, 1, key, mine)
            raise
        finally:
            over.set()
        with _later_if_away():
            self._client.eval(MARK, 1, key, mine, DONE, str(self._keep_ms))

    def _renew(self, key: str, mine: str, over: threading.Event) -> None:
        while not over.wait(self._claim_ms / 3000):
            with suppress(*AWAY):
                self._client.eval(RENEW, 1, key, mine, str(self._claim_ms))

    # ---- coroutines

    async def _was_known_async(
        self, group: str, message_id: str, written_at_ms: int | None
    ) -> bool:
        client: Any = self._async_client
        if group not in self._topic_ids_since_ms:
            key = self._since_key(group)
            await client.set(key, self._now_ms(), nx=True)
            self._topic_ids_since_ms[group] = _number(await client.get(key))
        key_before = self._former_key(group, message_id, written_at_ms)
        if key_before is None:
            return False
        left_ms = await client.pttl(key_before)
        return self._is_this(await client.get(key_before), left_ms, written_at_ms)

    @asynccontextmanager
    async def attempt_async(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> AsyncIterator[OnceAttempt]:
        client: Any = self._async_client
        key, mine = self._key(group, message_id), secrets.token_hex(16)
        with _later_if_away():
            taken = await client.set(key, mine, nx=True, px=self._claim_ms)
            holder = None if taken else await client.get(key)
            if taken and await self._was_known_async(group, message_id, written_at_ms):
                await client.set(key, DONE, px=self._keep_ms)
                taken, holder = None, DONE
        if not taken:
            _require_done(holder)
            yield OnceAttempt(duplicate=True)
            return
        renewing = asyncio.create_task(self._renew_async(key, mine))
        try:
            yield OnceAttempt(duplicate=False)
        except BaseException:
            with suppress(*AWAY):
                await client.eval(DROP, 1, key, mine)
            raise
        finally:
            renewing.cancel()
        with _later_if_away():
            await client.eval(MARK, 1, key, mine, DONE, str(self._keep_ms))

    async def _renew_async(self, key: str, mine: str) -> None:
        client: Any = self._async_client
        while True:
            await asyncio.sleep(self._claim_ms / 3000)
            with suppress(*AWAY):
                await client.eval(RENEW, 1, key, mine, str(self._claim_ms))


@contextmanager
def _later_if_away() -> Iterator[None]:
    try:
        yield
    except AWAY as away:
        raise TryLater(f"Redis of once= is away: {away}") from away


def _number(said: Any) -> int:
    return int(said) if said is not None and said.isdigit() else 0


def _require_done(holder: Any) -> None:
    """Raise TryLater unless the message was handled before: another worker has it at this
    moment."""
    if holder != DONE:
        raise TryLater("another worker is at this message")
