"""Trace a message, from its record, its id or its key, across topics on one page."""

from __future__ import annotations

import time

from aiohttp import web

from headrace.console.access.life import Life, Sought, life_of
from headrace.console.console import Console
from headrace.console.query import needed, text_in, whole_or_none
from headrace.console.views.life import candidate_rows, limits_in_words, step_rows
from headrace.wire.contract import durations

WITHIN = (("1h", "the last hour"), ("1d", "the last day"), ("7d", "the last week"),
          ("30d", "the last 30 days"))  # fmt: skip
LONGEST_S = 30.0


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    query = request.query
    topic, id, key = (text_in(query, name).strip() for name in ("topic", "id", "key"))
    partition, offset = (whole_or_none(query, name) for name in ("partition", "offset"))
    within = text_in(query, "within", "1d")
    if within not in dict(WITHIN):
        within = "1d"
    life: Life | None = None
    if id or key or offset is not None:
        needed(query, "topic", "The topic")
        now_ms = time.time_ns() // 1_000_000
        since_ms = now_ms - durations.parse(within)
        sought = Sought(topic, partition, offset, id, key, since_ms)
        life = await console.access.ask(life_of, sought, longest_s=LONGEST_S)
    return console.page(
        request,
        "life.html",
        title="Trace a message",
        section="life",
        topic=topic,
        id=id,
        key=key,
        partition=partition,
        offset=offset,
        within=within,
        withins=WITHIN,
        life=life,
        steps=[] if life is None else step_rows(life),
        candidates=[] if life is None else candidate_rows(life),
        limits=[] if life is None else limits_in_words(life),
    )
