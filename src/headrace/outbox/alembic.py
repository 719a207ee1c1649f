"""The outbox's tables in a migration of Alembic: `upgrade(op)` and `downgrade(op)`.

    from headrace.outbox import alembic as outbox

    def upgrade() -> None:
        outbox.upgrade(op)

Alembic itself is not needed by this module: `op` is given.
"""

from __future__ import annotations

from typing import Any

from headrace.services.outbox import schema


def upgrade(op: Any, shards: int | None = None) -> None:
    """Make the tables of the outbox; `shards` is how many relays can share the work."""
    schema.create(op.get_bind(), shards)


def downgrade(op: Any) -> None:
    """Rows that were not sent are lost: let the relay finish first."""
    bind = op.get_bind()
    for statement in schema.drop_statements(bind.dialect.name):
        bind.exec_driver_sql(statement)
