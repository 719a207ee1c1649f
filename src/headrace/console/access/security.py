"""Questions about who may what: users, entries of access control, quotas, the cluster's audit."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from headrace.client.acls import Acl, Acls
from headrace.client.browsing import Browser, Seen
from headrace.client.connection import Connection
from headrace.client.quotas import Quota, Quotas
from headrace.client.topics import Topics
from headrace.client.users import User, Users
from headrace.console.access.parts import Part, part

AUDIT_TOPIC = "headrace.audit"
AUDIT_SHOWN = 100


@dataclass(slots=True)
class SecurityFacts:
    users: Part[list[User]]
    acls: Part[list[Acl]]
    quotas: Part[list[Quota]]
    audit: Part[list[dict[str, Any]] | None]  # None: the cluster keeps none in a topic


def security_facts(connection: Connection) -> SecurityFacts:
    return SecurityFacts(
        part(Users(connection).all),
        part(Acls(connection).find),
        part(Quotas(connection).all),
        part(lambda: _audit(connection)),
    )


def _audit(connection: Connection) -> list[dict[str, Any]] | None:
    """The newest lines, the newest first."""
    if AUDIT_TOPIC not in Topics(connection).cluster.topics:
        return None
    with closing(Browser(connection, AUDIT_TOPIC)) as browser:
        page = browser.backwards(
            browser.ends(browser.partitions), want=AUDIT_SHOWN, accepts=_is_data
        )
    found = []
    for seen in page.found:
        try:
            line = json.loads(seen.record.value or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def _is_data(seen: Seen) -> bool:
    return seen.is_data


def may_administer(connection: Connection) -> None:
    """Raises what the cluster says to somebody who may not see its access control."""
    Acls(connection).find()
