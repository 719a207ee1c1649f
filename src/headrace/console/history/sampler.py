"""Samples of how far all groups are behind, for as long as the console runs.

A round asks the cluster with few requests (`client/admin/group_lags.py`). Between rounds is a pause
of at least 15 seconds, and of at least twenty times what the round took: a cluster with ten
thousand groups is asked less often, never more. A failure is shown on the pages and in the log, and
the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.admin.group_lags import GroupLag, GroupLags
from headrace.client.admin.groups import Groups
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.console.access.cluster_access import ClusterAccess
from headrace.console.access.overview import ends_of_topics
from headrace.console.access.rates import RateMeter
from headrace.console.history.lag_store import LagStore

EVERY_S = 15.0
PAUSE_PER_ROUND = 20
LONGEST_PAUSE_S = 300.0
LONGEST_ROUND_S = 60.0
# Between two samples; over a longer time an average would mislead.
LONGEST_STEP_S = 900.0
# Beyond this the rest is not sampled, and pages say so.
MOST_GROUPS = 10_000

log = logging.getLogger("headrace.console.sampler")


@dataclass(slots=True)
class Sampler:
    access: ClusterAccess  # of the console itself: its user needs to describe groups and topics
    folder: Path | None = None  # None: samples are kept in memory
    store: LagStore = field(default_factory=LagStore)
    wall_s: Callable[[], float] = time.time
    problem: str = ""  # why the last round failed
    groups_left_out: int = 0
    latest: dict[str, GroupLag] = field(default_factory=dict)
    at_s: float | None = None  # wall clock of `latest`
    written: RateMeter = field(default_factory=RateMeter)  # into each topic
    read_per_s: float | None = None  # by all groups together; None until there are two samples
    _cluster: str | None = None  # whose store is open

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            began = time.monotonic()
            await self.sample()
            took_s = time.monotonic() - began
            await asyncio.sleep(min(max(EVERY_S, took_s * PAUSE_PER_ROUND), LONGEST_PAUSE_S))

    async def sample(self) -> None:
        """One round."""
        try:
            await self.access.ask(self._round, longest_s=LONGEST_ROUND_S)
            self.problem = ""
        except (ClientError, sqlite3.Error, OSError) as failure:
            if str(failure) != self.problem:
                log.warning("lag was not sampled: %s", failure)
            self.problem = str(failure)

    async def close(self) -> None:
        self.store.close()

    def _round(self, connection: ClientSettings) -> None:
        groups = Groups(connection)
        self._open_store(str(groups.cluster.cluster_id))
        names = [each.group for each in groups.all()]
        with GroupLags(connection) as lags:
            found = lags.of(names[:MOST_GROUPS])
        self.written.note(ends_of_topics(connection), time.monotonic(), longest_s=LONGEST_STEP_S)
        now_s = self.wall_s()
        self.read_per_s = _read_per_s(self.latest, self.at_s, found, now_s)
        no_room = self.store.note(found, int(now_s))
        if self.written.rates is not None:
            self.store.note_throughput(self.written.rates.total, self.read_per_s or 0.0, int(now_s))
        self.latest, self.at_s = found, now_s
        self.groups_left_out = max(len(names) - MOST_GROUPS, 0) + no_room

    def _open_store(self, cluster: str) -> None:
        """Opens the cluster's own file: a cluster that was created again has other offsets."""
        if cluster == self._cluster:
            return
        self.latest, self.at_s = {}, None
        before = self.store
        if self.folder is None:
            self.store = LagStore()
        else:
            self.store = LagStore(self.folder / f"lag-{_file_name(cluster)}.sqlite")
        self._cluster = cluster
        before.close()


def _read_per_s(
    before: Mapping[str, GroupLag],
    before_s: float | None,
    now: Mapping[str, GroupLag],
    now_s: float,
) -> float | None:
    if before_s is None or not 0 < now_s - before_s < LONGEST_STEP_S:
        return None
    read = sum(
        max(lag.committed - before[group].topics[topic].committed, 0)
        for group, seen in now.items()
        if group in before
        for topic, lag in seen.topics.items()
        if topic in before[group].topics
    )
    return read / (now_s - before_s)


def _file_name(cluster: str) -> str:
    """Returns a safe file name: a cluster's id may contain any characters."""
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in cluster)[:64]
