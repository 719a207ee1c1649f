"""Security: users, access control, quotas, and who changed what."""

from __future__ import annotations

from aiohttp import web

from headrace.console.access.security import security_facts
from headrace.console.console import Console
from headrace.console.query import text_in
from headrace.console.views.services import acl_words, audit_row, quota_words

MOST_SHOWN = 500


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    contains = text_in(request.query, "q").lower()
    facts = await console.access.ask(security_facts)
    entries = [
        (each.principal, acl_words(each))
        for each in facts.acls.answer or []
        if contains in f"{each.principal} {each.resource} {each.operation}".lower()
    ]
    users = [each for each in facts.users.answer or [] if contains in each.name.lower()]
    quotas = [quota_words(each) for each in facts.quotas.answer or []]
    return console.page(
        request,
        "security.html",
        title="Security",
        section="security",
        facts=facts,
        contains=contains,
        users=users[:MOST_SHOWN],
        entries=entries[:MOST_SHOWN],
        left_out=max(len(users) - MOST_SHOWN, 0) + max(len(entries) - MOST_SHOWN, 0),
        quotas=[each for each in quotas if contains in each[0].lower()][:MOST_SHOWN],
        audit=[audit_row(each) for each in facts.audit.answer or []],
        changes=_changes(console),
        audit_problem=console.audit.problem,
    )


def _changes(console: Console) -> list[object]:
    """Made by this console, the newest first; with logins a person sees their own."""
    newest = list(console.audit.recent)[::-1]
    if console.person is not None:
        mine = (console.person.name, console.by)
        newest = [each for each in newest if each.person in mine]
    return list(newest[:100])
