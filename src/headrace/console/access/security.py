"""Questions about permissions: users, access control entries, quotas, the cluster's audit."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.acls import Acl, Acls
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.quotas import Quota, Quotas
from headrace.client.admin.topics import Topics
from headrace.client.admin.users import User, Users
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Browser
from headrace.console.access.parts import Part, part
from headrace.wire.contract.own_records import UnreadableRecord, json_object


class NotAllowed(ClientError):
    """This user lacks the right."""


AUDIT_TOPIC = "headrace.audit"
AUDIT_SHOWN = 100


@dataclass(slots=True)
class SecurityFacts:
    users: Part[list[User]]
    acls: Part[list[Acl]]
    quotas: Part[list[Quota]]
    audit: Part[list[dict[str, Any]] | None]  # None: the cluster keeps none in a topic


def security_facts(connection: ClientSettings) -> SecurityFacts:
    return SecurityFacts(
        part(Users(connection).all),
        part(Acls(connection).find),
        part(Quotas(connection).all),
        part(lambda: _audit(connection)),
    )


def _audit(connection: ClientSettings) -> list[dict[str, Any]] | None:
    """The newest lines, the newest first."""
    if AUDIT_TOPIC not in Topics(connection).cluster.topics:
        return None
    with closing(Browser(connection, AUDIT_TOPIC)) as browser:
        page = browser.backwards(browser.ends(browser.partitions), want=AUDIT_SHOWN)
    found = []
    for seen in page.found:
        try:
            found.append(json_object(seen.record.value))
        except UnreadableRecord:
            continue
    return found


def require_observer(connection: ClientSettings) -> None:
    """Requires the right to describe the cluster, for things outside it such as databases. If no
    rights are needed here, all users may see them."""
    if not Cluster(connection).rights() & {"describe", "all"}:
        raise NotAllowed("You need the right to describe the cluster to see this.")


def require_administrator(connection: ClientSettings) -> None:
    """Requires the right to alter the cluster, for changes to things outside it."""
    if not Cluster(connection).rights() & {"alter", "all"}:
        raise NotAllowed("You need the right to alter the cluster to do this.")
