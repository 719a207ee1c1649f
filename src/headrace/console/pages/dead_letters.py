"""Dead letters: which topics have some, the letters of one topic, one letter whole; resend,
discard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.console import live
from headrace.console.access.dead_letters import (
    MOST_AT_ONCE,
    ON_ONE_PAGE,
    LetterPage,
    discard,
    letter_topics,
    letters_of,
    one_letter,
    redrive,
    redrive_at,
    require_letters,
    who_did_what,
)
from headrace.console.access.security import require_administrator
from headrace.console.console import Console
from headrace.console.jobs.owner import REDRIVE, Job
from headrace.console.jobs.redrive import Redrive
from headrace.console.query import Unreadable, offsets_in, offsets_text, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.commands import Name
from headrace.console.views.dead_letters import (
    LetterRow,
    letter_row,
    letter_topic_row,
    whole_letter,
)
from headrace.console.views.edited_value import EditedValue, edited_value
from headrace.console.views.list_pages import Paging
from headrace.console.views.words import number
from headrace.services.redrive.letters import LetterId, Selection

LONG_S = 120.0
PROGRESS_EVERY_S = 1.0
MOST_REFUSALS_TOLD = 3
ACTIONS = ("redrive", "discard")


async def show_topics(console: Console, request: web.Request) -> web.StreamResponse:
    page = whole(request.query, "page", default=0, most=1_000_000)
    found = await console.access.ask(letter_topics, page)
    return console.page(
        request,
        "dead_letters.html",
        title="Dead letters",
        section="dead-letters",
        rows=[letter_topic_row(each) for each in found.topics],
        paging=Paging(page, ON_ONE_PAGE, found.there),
        settled_is_whole=found.settled_is_whole,
    )


async def show_letters(console: Console, request: web.Request) -> web.StreamResponse:
    topic, query = request.match_info["topic"], request.query
    error, key, settled = (text_in(query, name) for name in ("error", "key", "settled"))
    found, rows = await console.access.ask(
        _read_rows,
        topic,
        _selection(error=error, key=key),
        settled == "1",
        offsets_in(text_in(query, "at")),
    )
    return console.page(
        request,
        "letters.html",
        title=f"Dead letters of {topic}",
        section="dead-letters",
        topic=topic,
        rows=rows,
        found=found,
        error=error,
        key=key,
        settled=settled,
        following=None if found.at_the_end else offsets_text(found.next),
        line=console.commands.list_letters(topic, error=error, key=key),
        most=MOST_AT_ONCE,
        jobs=console.jobs.of(REDRIVE, topic)[:3],
    )


def _read_rows(connection: ClientSettings, *asked: Any) -> tuple[LetterPage, list[LetterRow]]:
    """Reads letters and renders them on the same thread, because large values take time."""
    found = letters_of(connection, *asked)
    return found, [letter_row(*each) for each in found.letters]


async def show_one(console: Console, request: web.Request) -> web.StreamResponse:
    topic, at = request.match_info["topic"], text_in(request.query, "at")
    found = await console.access.ask(one_letter, topic, *_letter_id(at))
    return console.page(
        request,
        "letter.html",
        title=f"Letter {at} of {topic}",
        section="dead-letters",
        status=200 if found is not None else 404,
        topic=topic,
        at=at,
        letter=None if found is None else whole_letter(*found),
        line=console.commands.show_letter(topic, at),
    )


async def settle(console: Console, request: web.Request) -> web.StreamResponse:
    """Resends or discards the ticked letters, or all that match the filter."""
    topic, form = request.match_info["topic"], await request.post()
    action, reason = text_in(form, "action"), text_in(form, "reason").strip()
    if action not in ACTIONS:
        raise Unreadable("Choose an action: send again, or discard.")
    every = text_in(form, "scope") == "filter"
    error, key = (text_in(form, name) if every else "" for name in ("error", "key"))
    letter_ids = [] if every else [str(each) for each in form.getall("at", [])]
    if not every and not letter_ids:
        raise Unreadable("Select at least one letter. Nothing was changed.")
    selection = _selection(letter_ids, error=error, key=key)
    rate = whole(form, "rate", default=0, most=100_000)
    if action == "redrive" and every and rate:
        return _redrive_slowly(console, request, topic, selection, reason, rate, error, key)
    edited = await _edited(console, topic, letter_ids, form)
    if edited is not None and action == "discard":
        raise Unreadable(
            "The value in the editor was changed. Send it, or take the change back before you "
            "discard the letter. Nothing was changed."
        )
    if edited is not None and text_in(form, "confirmed") != "1":
        return console.page(
            request,
            "letter_edited.html",
            title=f"Changed value of letter {letter_ids[0]}",
            section="dead-letters",
            topic=topic,
            at=letter_ids[0],
            edited=edited,
            reason=reason,
        )
    if action == "discard":
        done = await console.access.ask(
            discard, topic, selection, console.by, reason, longest_s=LONG_S
        )
    else:
        value = None if edited is None else edited.text.encode()
        done = await console.access.ask(
            redrive, topic, selection, console.by, reason, value, longest_s=LONG_S
        )
    letters = "letter" if done.count == 1 else "letters"
    verb = "sent again to the group that failed" if action == "redrive" else "discarded"
    said = f"{done.count:,} {letters} {verb}."
    if done.refusals:
        told = " ".join(done.refusals[:MOST_REFUSALS_TOLD])
        said += f" {len(done.refusals):,} refused: {told}"
    command = console.commands.settle_letters(
        action,
        topic,
        letter_ids,
        error=error,
        key=key,
        reason=reason,
        value=None if edited is None else edited.text,
    )
    return console.done(
        request,
        link("dead-letters", topic, error=error, key=key),
        said,
        command=command,
        good=not done.refusals,
    )


async def _edited(
    console: Console, topic: str, letter_ids: list[str], form: Mapping[str, Any]
) -> EditedValue | None:
    """Returns the edited value, or None if it equals the letter's own."""
    if "value" not in form:
        return None
    if len(letter_ids) != 1:
        raise Unreadable("An edited value is for one letter.")
    return await console.access.ask(
        _compared, topic, _letter_id(letter_ids[0]), text_in(form, "value")
    )


def _compared(
    connection: ClientSettings, topic: str, letter_id: LetterId, said: str
) -> EditedValue | None:
    found = one_letter(connection, topic, *letter_id)
    return None if found is None else edited_value(found[0].value, said)


def _redrive_slowly(
    console: Console,
    request: web.Request,
    topic: str,
    selection: Selection,
    reason: str,
    rate: int,
    error: str,
    key: str,
) -> web.StreamResponse:
    connection, by = console.access.connection, console.by
    work = Redrive(topic, rate, lambda: redrive_at(connection, topic, selection, by, reason, rate))
    console.jobs.start(work.subject, by, work, owner=console.person, taken=work.taken)
    command = console.commands.settle_letters(
        "redrive", topic, [], error=error, key=key, reason=reason, rate=rate
    )
    said = f"Letters of {topic} are being sent again, {rate} per second; this page shows how far."
    return console.done(request, link("dead-letters", topic), said, command=command)


async def stop(console: Console, request: web.Request) -> web.StreamResponse:
    topic, form = request.match_info["topic"], await request.post()
    await console.access.ask(require_letters, topic)
    job = console.jobs.get(whole(form, "job", default=0))
    if job is None or job.subject != (REDRIVE, topic):
        raise Unreadable("No such redrive.")
    if console.person is not None and job.by != console.by:
        await console.access.ask(require_administrator)  # a job that another user has started
    console.jobs.stop(job, console.by)
    said = f"Stopping: {job.work.sent:,} letters of {topic} were sent again."
    return console.done(request, link("dead-letters", topic), said)


async def progress(console: Console, request: web.Request) -> web.StreamResponse:
    """Streams the progress of the redrives of a topic, until all of them are over."""
    topic = request.match_info["topic"]
    await console.access.ask(require_letters, topic)  # a user who may not see it is refused

    async def frames() -> AsyncIterator[tuple[str, Any]]:
        while True:
            jobs = console.jobs.of(REDRIVE, topic)
            yield "jobs", {"jobs": [job_frame(job) for job in jobs[:1]]}
            if not jobs or jobs[0].is_over:
                yield "over", {}
                return
            await asyncio.sleep(PROGRESS_EVERY_S)

    return await live.stream(console, request, frames())


def job_frame(job: Job) -> dict[str, Any]:
    work: Redrive = job.work
    return {"id": str(job.id), "over": job.is_over, "texts": {"sent": number(work.sent)}}


async def show_done(console: Console, request: web.Request) -> web.StreamResponse:
    topic = request.match_info["topic"]
    await console.access.ask(require_letters, topic)
    found = await console.access.ask(who_did_what, topic)
    return console.page(
        request,
        "letters_done.html",
        title=f"Activity of {topic}",
        section="dead-letters",
        topic=topic,
        found=found,
        line=console.commands.headrace("dead-letters", "list", Name(topic), "--settled"),
    )


def _selection(letter_ids: list[str] | None = None, *, error: str, key: str) -> Selection:
    return Selection(
        letter_ids=frozenset(_letter_id(each) for each in letter_ids) if letter_ids else None,
        error=error or None,
        key=key.encode() if key else None,
    )


def _letter_id(said: str) -> LetterId:
    partition, _, offset = said.partition("/")
    given = {"partition": partition, "offset": offset}
    if not partition or not offset:
        raise Unreadable(f"{said!r} is not PARTITION/OFFSET, such as 0/17.")
    return (
        whole(given, "partition", default=0, most=2**31 - 1),
        whole(given, "offset", default=0),
    )
