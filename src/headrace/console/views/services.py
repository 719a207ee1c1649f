"""Transactions, outboxes, pipelines and access control, as their pages show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.client.admin.acls import Acl
from headrace.client.admin.transactional_ids import TransactionDescription
from headrace.console.views import words
from headrace.console.views.groups import spans
from headrace.operations.pipelines import PipelineFacts


@dataclass(slots=True)
class TransactionRow:
    id: str
    state: str
    producer: str
    started_ms: int | None
    open_for: str
    is_long: bool  # longer than its own time-out: its coordinator should have ended it
    partitions: str


def transaction_row(found: TransactionDescription, now_ms: int) -> TransactionRow:
    started_ms = found.started_ms
    age_ms = None if started_ms is None else max(now_ms - started_ms, 0)
    return TransactionRow(
        found.transactional_id,
        found.state,
        f"{found.producer_id}, epoch {found.producer_epoch}",
        started_ms,
        "–" if age_ms is None else words.lasting(age_ms),
        age_ms is not None and age_ms > found.timeout_ms,
        spans(found.partitions),
    )


RUNS, ENDED, FAILED, DAMAGED = "runs", "ended", "failed", "cannot be read"


@dataclass(slots=True)
class PipelineRow:
    name: str
    state: str
    source: str
    sink: str
    batch: int | None
    rows_per_second: float | None
    behind: int | None
    rows_total: int | None
    dead: int | None
    last_ms: int | None  # when its last batch with rows was planned
    failure: str
    failed_ms: int | None


def pipeline_row(facts: PipelineFacts) -> PipelineRow:
    last, failure = facts.progress, facts.failure
    last_ms = _moment(last.get("time"))
    failed_ms = _whole(failure.get("at_ms"))
    has_failed = bool(failure) and (failed_ms or 0) >= (last_ms or 0)
    state = RUNS if facts.process else FAILED if has_failed else ENDED
    speed = last.get("rows_per_second")
    return PipelineRow(
        facts.name,
        DAMAGED if facts.problem else state,
        str(facts.described.get("source", "–")),
        str(facts.described.get("sink", "–")),
        _whole(last.get("batch")),
        float(speed) if facts.process and isinstance(speed, int | float) else None,
        _whole(last.get("behind")),
        _whole(last.get("rows_total")),
        _whole(last.get("dead")),
        last_ms,
        facts.problem or (str(failure.get("sentence", "")) if has_failed else ""),
        failed_ms if has_failed else None,
    )


def _whole(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _moment(said: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(str(said)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def acl_words(entry: Acl) -> str:
    """`may read topic orders`, for people."""
    names = "all" if entry.resource == "*" else entry.resource
    which = (
        f"{entry.resource_type} names that begin with"
        if entry.pattern == "prefixed"
        else (entry.resource_type)
    )
    what = "do everything with" if entry.operation == "all" else entry.operation.replace("_", " ")
    host = "" if entry.host == "*" else f", from {entry.host}"
    verb = "may" if entry.permission == "allow" else "may not"
    return f"{verb} {what} {which} {names}{host}"


def quota_words(entity: Mapping[str, str | None], limits: Mapping[str, float]) -> tuple[str, str]:
    who = ", ".join(
        f"{kind} {name if name is not None else '(every other)'}"
        for kind, name in sorted(entity.items())
    )
    return who, ", ".join(f"{name} {amount:g}" for name, amount in limits.items())


@dataclass(slots=True)
class AuditRow:
    at: str
    event: str
    who: str
    api: str
    details: str


def audit_row(line: dict[str, Any]) -> AuditRow:
    """Reads a line of the cluster's audit; unknown fields are shown as they are."""
    known = ("time", "event", "principal", "user", "api", "host", "listener")
    rest = {name: value for name, value in line.items() if name not in known}
    return AuditRow(
        str(line.get("time", "")),
        str(line.get("event", "")),
        str(line.get("principal") or line.get("user") or ""),
        str(line.get("api", "")),
        ", ".join(f"{name}: {_plain(value)}" for name, value in rest.items())[:500],
    )


def _plain(value: Any) -> str:
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)
