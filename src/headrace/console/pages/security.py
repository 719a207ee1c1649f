"""Security: users, access control, quotas, and who changed what."""

from __future__ import annotations

from aiohttp import web

from headrace.client.admin.quotas import LIMITS
from headrace.console.access.security import SecurityFacts, security_facts
from headrace.console.audit import Change
from headrace.console.console import Console
from headrace.console.query import text_in
from headrace.console.views.rights import (
    ACCESS,
    LIMIT_WORDS,
    LIMITED,
    RESOURCES,
    SHORTEST_PASSWORD,
    QuotaRow,
    operations,
)
from headrace.console.views.services import acl_words, audit_row, quota_words

MOST_SHOWN = 500


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    contains = text_in(request.query, "q").strip()
    facts = await console.access.ask(security_facts)
    sought = contains.lower()
    entries = [
        (each, acl_words(each))
        for each in facts.acls.answer or []
        if sought in f"{each.principal} {each.resource} {each.operation}".lower()
    ]
    users = [each for each in facts.users.answer or [] if sought in each.name.lower()]
    quotas = [each for each in _quotas(facts) if sought in each.whom.lower()]
    found = (len(users), len(entries), len(quotas))
    return console.page(
        request,
        "security.html",
        title="Security",
        section="security",
        facts=facts,
        contains=contains,
        users=users[:MOST_SHOWN],
        entries=entries[:MOST_SHOWN],
        quotas=quotas[:MOST_SHOWN],
        left_out=sum(max(count - MOST_SHOWN, 0) for count in found),
        audit=[audit_row(each) for each in facts.audit.answer or []],
        changes=_changes(console),
        audit_problem=console.audit.problem,
        resources=RESOURCES,
        access=ACCESS,
        operations=operations(),
        limited=LIMITED,
        limits={name: LIMIT_WORDS.get(name, name) for name in LIMITS},
        shortest_password=SHORTEST_PASSWORD,
    )


def _quotas(facts: SecurityFacts) -> list[QuotaRow]:
    """A row for each limit, so that each can be taken away."""
    return [
        QuotaRow(quota_words(quota.entity, {})[0], quota.entity, name, f"{amount:,.12g}")
        for quota in facts.quotas.answer or []
        for name, amount in quota.limits.items()
    ]


def _changes(console: Console) -> list[Change]:
    """Returns the changes made by this console, the newest first; with logins users see
    their own."""
    newest = console.activity[::-1]
    if console.person is not None:
        mine = (console.person.name, console.by)
        newest = [each for each in newest if each.person in mine]
    return newest[:100]
