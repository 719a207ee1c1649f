"""The outbox's tables in a migration of Alembic: `upgrade(op)` and `downgrade(op)`.

    from headrace.outbox import alembic as outbox

    def upgrade() -> None:
        outbox.upgrade(op)

This module does not need Alembic itself: the caller passes `op`.
"""

from __future__ import annotations

from typing import Any

from headrace.services.outbox import schema


def upgrade(op: Any, shards: int | None = None) -> None:
    """Create the tables of the outbox; `shards` is how many relays can share the work."""
    schema.create(op.get_bind(), shards)


def downgrade(op: Any) -> None:
    """Drop the tables. Rows that were not sent are lost: let the relay finish first."""
    bind = op.get_bind()
    for statement in schema.drop_statements(bind.dialect.name):
        bind.exec_driver_sql(statement)
