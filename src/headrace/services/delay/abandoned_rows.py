"""Removes rows of the store that belong to disabled or deleted topics.

The store is a cache, so this loses nothing: what waits in a topic that was disabled is read again
when it is enabled. It waits a while, because the cluster may only seem to have lost a topic, and to
read millions of messages again takes longer than to keep them for a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Container

from headrace.services.delay.intake import Place
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.topics import Catalog

log = logging.getLogger("headrace.delay")

LOOK_EVERY_S = 10.0
UNWANTED_FOR_S = 60.0


class Tidying:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._unwanted: dict[Place, float] = {}  # since when
        self._look_at_s = 0.0

    def look(self, catalog: Catalog, owned: Container[Place], now_s: float) -> None:
        """Call it now and then, but not before the registry was read; `now_s` is monotonic."""
        if now_s < self._look_at_s or not catalog.complete:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        unwanted = {}
        for place in self._store.places():
            if place in owned or _is_there(place, catalog):
                continue
            since = unwanted[place] = self._unwanted.get(place, now_s)
            if now_s - since >= UNWANTED_FOR_S:
                log.info("%s-%d is not served any more: its rows leave the store", *place)
                self._store.forget(*place)
                del unwanted[place]
        self._unwanted = unwanted


def _is_there(place: Place, catalog: Catalog) -> bool:
    pair = catalog.pairs.get(place[0])
    return pair is not None and place[1] < pair.partitions
