"""Changes to permissions: users, access control entries, quotas. The cluster decides whether this
user may make them; a refusal is raised with the cluster's own message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.admin.acls import Acl, AclFilter, Acls
from headrace.client.admin.quotas import Quotas
from headrace.client.admin.users import MECHANISMS, Users
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError


@dataclass(slots=True)
class UserSet:
    is_new: bool


def set_user(connection: ClientSettings, name: str, password: str) -> UserSet:
    """Sets the password for all mechanisms, so that the user's clients may use any of them."""
    users = Users(connection)
    known = {user.name for user in users.all()}
    for mechanism in MECHANISMS:
        users.set_password(name, password, mechanism=mechanism)
    return UserSet(name not in known)


def remove_user(connection: ClientSettings, name: str) -> None:
    Users(connection).remove(name)


def add_entries(connection: ClientSettings, entries: list[Acl]) -> None:
    Acls(connection).add(entries)


def remove_entry(connection: ClientSettings, entry: Acl) -> None:
    """Removes exactly this entry."""
    exactly = AclFilter(
        entry.resource_type,
        entry.resource,
        entry.pattern,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
    if not Acls(connection).remove([exactly]):
        raise ClientError("This ACL no longer exists. Nothing was changed.")


def set_limits(
    connection: ClientSettings, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> None:
    """Sets limits; a limit of None is removed."""
    Quotas(connection).alter(entity, limits)
