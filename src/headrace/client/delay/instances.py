"""The running instances of the delay service: found through their group, asked over HTTP.

Each instance has its address in its client id (`headrace-delay@127.0.0.1:9095`) and owns some
partitions. A question goes to all of them, and their answers are merged: pending messages by due
time, and reports. The HTTP endpoint listens on loopback, so questions must be asked on the machine
where an instance runs. Nothing is changed here.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from headrace.client.admin.groups import Groups, Member, NoSuchGroup
from headrace.client.connection import ClientSettings, reach
from headrace.client.delay.registry import registrations
from headrace.client.delay.window_token import token_for
from headrace.client.errors import ClientError
from headrace.wire.contract.delay_topics import GROUP

LARGEST_ANSWER_BYTES = 256 << 20
# From a node's first delayed topic until its service has joined its group: a process must start and
# join.
JUST_STARTING_S = 4.0
LOOK_AGAIN_S = 0.2
# Several questions in a row go to the same instances.
BELIEVED_S = 1.0
CLIENT_ID_PREFIX = f"{GROUP}@"


class NoDelayService(ClientError):
    """No instance runs, or none can be reached from here."""


class NotAnswering(NoDelayService):
    """An instance is in its group, but does not answer."""


@dataclass(slots=True)
class Instance:
    name: str
    machine: str  # the address that it connects from, as the broker sees it
    address: str | None  # of its HTTP endpoint; None if it has none


@dataclass(slots=True)
class Page:
    """Pending messages by due time, as JSON objects; `next` is the position of the next page."""

    rows: list[dict[str, Any]]
    next: str | None
    now_ms: int  # by the service's clock, which decides what is due
    missing: int  # partitions that are being rebuilt, or that no instance has yet


class DelayInstances:
    """The instances that serve the cluster at `connection`."""

    def __init__(self, connection: ClientSettings, group: str = GROUP) -> None:
        self.connection = connection
        self.group = group
        self._running: list[Instance] = []  # as they were found at `_found_s`
        self._found_s = 0.0

    def all(self) -> list[Instance]:
        try:
            members = Groups(self.connection).members(self.group)
        except NoSuchGroup:
            return []
        return sorted((_instance(member) for member in members), key=lambda one: one.name)

    def require(self, wait_s: float = JUST_STARTING_S) -> list[Instance]:
        """All instances, at least one; waits for a service that is just starting."""
        if self._running and time.monotonic() - self._found_s < BELIEVED_S:
            return self._running
        deadline = time.monotonic() + min(wait_s, self.connection.timeout_s)
        while not (running := self.all()) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
        self._running, self._found_s = running, time.monotonic()
        if not running:
            raise NoDelayService(
                f"No delay service runs for the cluster at {self.connection.bootstrap}. "
                "`headrace start` brings its own; for another cluster run `headrace delay serve`."
            )
        return running

    def stats(self) -> list[tuple[Instance, dict[str, Any]]]:
        """The report of each instance about itself."""
        return self._ask_all("/stats")

    def pending(self, *, limit: int, **wanted: str | int | None) -> Page:
        """Pending messages by `topic`, `partition`, `id`, `key`, `from`, `to`, `values`,
        `after`."""
        given = {name: value for name, value in wanted.items() if value is not None}
        query = "/pending?" + urlencode({**given, "limit": limit})
        topic = given.get("topic")
        expected = self._partitions(None if topic is None else str(topic))
        deadline = time.monotonic() + min(JUST_STARTING_S, self.connection.timeout_s)
        while True:
            page = together([answer for _, answer in self._ask_all(query)], limit, expected)
            if not page.missing or time.monotonic() > deadline:
                return page
            time.sleep(LOOK_AGAIN_S)

    def _partitions(self, topic: str | None) -> int:
        """The number of partitions of all companions, or of one topic's."""
        topics = reach(self.connection.admin(), self.connection).topics
        pairs = [pair for pair in registrations(self.connection) if topic in (None, pair.target)]
        return sum(len(topics[p.companion].partitions) for p in pairs if p.companion in topics)

    def _ask_all(self, path: str) -> list[tuple[Instance, dict[str, Any]]]:
        """Ask all instances, again while one does not answer: a restarted one is back in a moment,
        perhaps elsewhere."""
        deadline = time.monotonic() + min(JUST_STARTING_S, self.connection.timeout_s)
        while True:
            try:
                return [(instance, self.ask(instance, path)) for instance in self.require()]
            except NotAnswering:
                asked, self._running = self._running, []
                # A silent address may have used up the time while the instance is elsewhere.
                if time.monotonic() > deadline and self.all() == asked:
                    raise
                time.sleep(LOOK_AGAIN_S)

    def ask(self, instance: Instance, path: str) -> dict[str, Any]:
        if instance.address is None:
            raise NoDelayService(f"Instance {instance.name} has no address for queries.")
        try:
            token = token_for(instance.address)
            status, answer = _get(instance.address, path, token, self.connection.timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as failure:
            raise NotAnswering(
                f"Instance {instance.name} of the delay service does not answer at "
                f"{instance.address} ({failure}). That address is on the machine where it runs "
                f"({instance.machine}): if that is this one, it has just ended; else ask there."
            ) from failure
        if status != http.client.OK:
            said = answer.get("error", f"status {status}")
            raise ClientError(f"Instance {instance.name} of the delay service says: {said}")
        return answer


def _instance(member: Member) -> Instance:
    prefixed = member.client_id.startswith(CLIENT_ID_PREFIX)
    return Instance(
        member.instance_id or member.id,
        member.host.lstrip("/"),
        member.client_id.removeprefix(CLIENT_ID_PREFIX) if prefixed else None,
    )


def _get(
    address: str, path: str, token: str | None, timeout_s: float
) -> tuple[int, dict[str, Any]]:
    """Ask without a proxy: a proxy of the environment must not get requests to loopback."""
    asked = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        asked.request("GET", path, headers=headers)
        answer = asked.getresponse()
        body = answer.read(LARGEST_ANSWER_BYTES + 1)
    finally:
        asked.close()
    if len(body) > LARGEST_ANSWER_BYTES:
        raise ValueError("the answer is too large; ask for less with --limit")
    said = json.loads(body)
    if not isinstance(said, dict):
        raise ValueError("the program at this address is not a delay service")
    return answer.status, said


PagePosition = tuple[int, str, int, int]  # due_ms, topic, partition, offset


def together(pages: Sequence[Mapping[str, Any]], limit: int, expected: int) -> Page:
    """Merge pages of several instances into one, in order, without a gap.

    An instance that has more was read only as far as its `next`; messages of others beyond that
    come with the next page.
    """
    ends = [_position_in(page["next"]) for page in pages if page["next"] is not None]
    rows = sorted((row for page in pages for row in page["rows"]), key=_position_of)
    if ends:
        rows = [row for row in rows if _position_of(row) <= min(ends)]
    following = _text(min(ends)) if ends else None
    if len(rows) > limit:
        rows, following = rows[:limit], _text(_position_of(rows[limit - 1]))
    now_ms = max(page["now_ms"] for page in pages)
    complete = sum(page["complete"] for page in pages)
    return Page(rows, following, now_ms, max(expected - complete, 0))


def first_of(page: Page, limit: int) -> Page:
    """The first `limit` messages of a page, as if no more had been asked for."""
    if len(page.rows) <= limit:
        return Page(list(page.rows), page.next, page.now_ms, page.missing)
    following = _text(_position_of(page.rows[limit - 1]))
    return Page(page.rows[:limit], following, page.now_ms, page.missing)


def _position_of(row: Mapping[str, Any]) -> PagePosition:
    return row["due_ms"], row["topic"], row["partition"], row["offset"]


def _position_in(text: str) -> PagePosition:
    due_ms, topic, partition, offset = text.split("/")
    return int(due_ms), topic, int(partition), int(offset)


def _text(position: PagePosition) -> str:
    return "/".join(map(str, position))
