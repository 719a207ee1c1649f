"""The settings of Kafka's own authorizer: the super users, and what applies without entries.

Kafka's table of settings knows only the class that decides; the two others are that class's own.
`authorizer.class.name` names Kafka's StandardAuthorizer or nothing.
"""

from __future__ import annotations

from headrace.node.metadata.config_definitions.definition import BadValue

AUTHORIZER_CLASS = "authorizer.class.name"
SUPER_USERS = "super.users"
OPEN_IF_NO_ENTRY = "allow.everyone.if.no.acl.found"
OF_THE_AUTHORIZER = (SUPER_USERS, OPEN_IF_NO_ENTRY)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def check_authorizer(value: str) -> str | None:
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return f"must be {STANDARD_AUTHORIZER}, which is built in, or empty"


def super_users(text: str) -> list[str]:
    """`User:alice;User:bob`; raises BadValue for what names no principal."""
    found = [name for part in text.split(";") if (name := part.strip())]
    for name in found:
        kind, colon, who = name.partition(":")
        if not (kind and colon and who):
            raise BadValue(f"{SUPER_USERS} names principals such as User:alice, not '{name}'.")
    return found


def open_if_no_entry(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise BadValue(f"{OPEN_IF_NO_ENTRY} must be true or false, not '{text}'.")
    return value == "true"
