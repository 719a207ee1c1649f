"""Rows of the outbox, for reading: `send` writes them, the relay reads and deletes them.

Django must not change the table: relays depend on how the database assigns its ids.
"""

from __future__ import annotations

from django.db import models


class OutboxRow(models.Model):  # type: ignore[misc]
    id = models.BigIntegerField(primary_key=True)
    shard = models.SmallIntegerField()
    topic = models.CharField(max_length=249)
    message_key = models.BinaryField(null=True)
    payload = models.BinaryField(null=True)
    headers = models.TextField(null=True)  # null is "none", as in the contract
    message_id = models.CharField(max_length=512, null=True)
    created_at = models.BigIntegerField()  # milliseconds since 1970

    class Meta:
        managed = False
        db_table = "headrace_outbox"
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.id} for {self.topic}"
