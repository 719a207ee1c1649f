"""The options with which a command says when a message shall be delivered."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.delayed.moments import moment_ms
from headrace.client.delay.schedules import TOO_LONG, When, require_understood, schedule_headers
from headrace.client.errors import Misuse
from headrace.wire.contract import durations

Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="WAIT", help="The delay from now: 500ms, 30m, 1h30m."),
]
DeliverAt = Annotated[
    str | None,
    typer.Option("--deliver-at", metavar="TIME", help="The time: 2026-01-31T10:00, epoch ms."),
]
Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="FIELDS", help='Repeat: "0 9 * * mon-fri".'),
]
CronZone = Annotated[
    str | None, typer.Option("--cron-zone", metavar="ZONE", help="The time zone: Europe/Berlin.")
]


def when_of(
    delay: str | None,
    deliver_at: str | None,
    cron: str | None = None,
    cron_zone: str | None = None,
    id: str | None = None,
) -> When:
    """The values of the options, checked; empty if none is given."""
    times = {"--delay": delay, "--deliver-at": deliver_at, "--cron": cron}
    if len(given := [name for name, value in times.items() if value is not None]) > 1:
        raise typer.BadParameter(f"Give {' or '.join(given)}: a record is due at one time.")
    if cron_zone is not None and cron is None:
        raise typer.BadParameter("--cron-zone belongs to --cron.")
    when: When = {}
    if delay is not None:
        when["delay"] = delay
    if deliver_at is not None:
        now_ms = time.time_ns() // 1_000_000
        due_ms = moment_ms(deliver_at, now_ms=now_ms, option="--deliver-at")
        if due_ms - now_ms > durations.LONGEST_DELAY_MS:
            raise typer.BadParameter(TOO_LONG, param_hint="--deliver-at")
        when["deliver_at"] = due_ms
    if cron is not None:
        when["cron"] = cron
    if cron_zone is not None:
        when["cron_zone"] = cron_zone
    if id is not None:
        when["id"] = id
    try:
        require_understood(schedule_headers(when))
    except Misuse as refusal:
        raise typer.BadParameter(str(refusal)) from refusal
    return when
