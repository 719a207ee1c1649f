"""The outbox as an application of Django."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):  # type: ignore[misc]
    name = "headrace.outbox.django"
    label = "headrace_outbox"
    verbose_name = "Outbox"
