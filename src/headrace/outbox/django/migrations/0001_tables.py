"""Make the outbox's tables, or bring those of an older version up to date."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from headrace.outbox.handles import DjangoHandle
from headrace.services.outbox import schema


def create(apps: Any, editor: Any) -> None:
    connection = editor.connection
    there = "headrace_outbox_meta" in connection.introspection.table_names()
    schema.make(DjangoHandle(connection, in_transaction=False), there=there)


def drop(apps: Any, editor: Any) -> None:
    handle = DjangoHandle(editor.connection, in_transaction=False)
    for statement in schema.drop_statements(handle.dialect):
        handle.run(statement)


class Migration(migrations.Migration):  # type: ignore[misc]
    # SQLite turns write-ahead logging on outside of a transaction only. Half of the tables do no
    # harm: they count as missing, and the next run makes the rest.
    atomic = False
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        migrations.RunPython(create, drop),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("shard", models.SmallIntegerField()),
                ("topic", models.CharField(max_length=249)),
                ("message_key", models.BinaryField(null=True)),
                ("payload", models.BinaryField(null=True)),
                ("headers", models.TextField(null=True)),
                ("message_id", models.CharField(max_length=512, null=True)),
                ("created_at", models.BigIntegerField()),
            ],
            options={"db_table": "headrace_outbox", "ordering": ("id",), "managed": False},
        ),
    ]
