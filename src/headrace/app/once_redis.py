"""`once=Redis(url, keep="24h")`: the memory of what was handled lies beside the handler, in Redis.

A message is claimed before the handler runs and marked as done after it; a failed attempt gives the
claim back. Weak, and good for notices, not for money: between the handler's effect and the mark a
crash lets the message run again, and Redis itself may forget. What it does prevent is the common
case: the same message again after a rebalance, a redelivery, a double send.

A claim expires if its holder dies (`claim`, renewed while the handler runs). Redis that is away is
nobody's failure: `TryLater`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from redis.asyncio import Redis as Client
from redis.exceptions import ConnectionError, TimeoutError

from headrace.app.once import OnceAttempt
from headrace.app.retry import Duration, TryLater, milliseconds

DONE = b"done"
AWAY = (ConnectionError, TimeoutError, OSError)

# Change the key only while the claim is still ours: another may hold it after ours ran out.
IF_MINE_MARK = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end"  # fmt: skip # noqa: E501
IF_MINE_RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) end"  # fmt: skip # noqa: E501
IF_MINE_DROP = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


class Redis:
    def __init__(
        self,
        url: str,
        *,
        keep: Duration = "24h",
        claim: Duration = "1m",
        prefix: str = "headrace:once",
    ) -> None:
        self._client = Client.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        self._keep_ms = milliseconds(keep, "keep")
        self._claim_ms = milliseconds(claim, "claim")
        self._prefix = prefix

    @property
    def asynchronous(self) -> bool:
        return True

    def prepare(self, group: str) -> None:
        """Nothing: keys make themselves."""

    def attempt(self, group: str, message_id: str) -> AbstractAsyncContextManager[OnceAttempt]:
        return self._attempt(f"{self._prefix}:{group}:{message_id}")

    def close(self) -> None:
        """Connections end with the loop that they were opened on."""

    @asynccontextmanager
    async def _attempt(self, key: str) -> AsyncIterator[OnceAttempt]:
        mine = secrets.token_bytes(16)
        if not await self._claimed(key, mine):
            yield OnceAttempt(duplicate=True)
            return
        renewing = asyncio.create_task(self._renew(key, mine))
        try:
            yield OnceAttempt(duplicate=False)
        except BaseException:
            with suppress(*AWAY):  # the claim runs out by itself
                await self._client.eval(IF_MINE_DROP, 1, key, mine)
            raise
        finally:
            renewing.cancel()
        try:
            await self._client.eval(IF_MINE_MARK, 1, key, mine, DONE, self._keep_ms)
        except AWAY as away:
            raise TryLater(f"Redis of once= is away: {away}") from away

    async def _claimed(self, key: str, mine: bytes) -> bool:
        """True: it is ours. False: it was handled. Raises TryLater while another has it."""
        try:
            if await self._client.set(key, mine, nx=True, px=self._claim_ms):
                return True
            holder = await self._client.get(key)
        except AWAY as away:
            raise TryLater(f"Redis of once= is away: {away}") from away
        if holder == DONE:
            return False
        raise TryLater("another worker is at this message")

    async def _renew(self, key: str, mine: bytes) -> None:
        while True:
            await asyncio.sleep(self._claim_ms / 3000)
            with suppress(*AWAY):
                await self._client.eval(IF_MINE_RENEW, 1, key, mine, self._claim_ms)
