"""Topics: the list, and one with its partitions and readers."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from headrace.client.admin.group_lags import GroupLag
from headrace.console.access.topics import ON_ONE_PAGE, list_topics, one_topic
from headrace.console.console import Console
from headrace.console.query import text_in, whole
from headrace.console.views.list_pages import Paging
from headrace.console.views.topics import topic_page, topic_rows

MOST_PARTITIONS = 500  # that a page lists


async def show_all(console: Console, request: web.Request) -> web.StreamResponse:
    query = request.query
    contains, page = text_in(query, "q"), whole(query, "page", default=0, most=1_000_000)
    everything = text_in(query, "all") == "1"
    found = await console.access.ask(list_topics, contains, everything, page)
    return console.page(
        request,
        "topics.html",
        title="Topics",
        cluster=console.access.cluster,
        section="topics",
        rows=topic_rows(found, *_sampled(console)),
        found=found,
        paging=Paging(page, ON_ONE_PAGE, found.matching),
        contains=contains,
        everything=everything,
    )


def _sampled(
    console: Console,
) -> tuple[Mapping[str, float], Mapping[str, GroupLag] | None]:
    """The result of the sampler; groups only without logins: not every person may see all of
    them."""
    if console.sampler is None:
        return {}, None
    lags = console.sampler.latest if console.person is None else None
    return console.sampler.written.per_s, lags or None


async def show_one(console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["topic"]
    sampled = None if console.sampler is None else console.sampler.latest
    facts = await console.access.ask(one_topic, name, sampled)
    return console.page(
        request,
        "topic.html",
        title=name,
        section="topics",
        topic=name,
        page=topic_page(facts),
        most_rows=MOST_PARTITIONS,
    )
