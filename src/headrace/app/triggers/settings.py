"""The operator's file of triggers, `triggers.toml`: read and checked; all errors at once.

    group = "triggers"                        # consumer groups are named <group>.<trigger>

    [trigger.refunds]
    topic = "orders"                          # or pattern = "orders-.*"
    filter = 'value.kind == "refund"'
    url = "https://crm.example.org/hook"      # or function = "shop.refunds:book"
    secret_env = "CRM_SECRET"                 # the variable that holds the signing secret
    batch = { records = 100, bytes = 1048576, wait = "1s" }
    retry = { attempts = 8, first = "1s", longest = "10m" }
    concurrency = 4
    rate = 50                                 # calls per second at most

Only this file names functions and addresses; a record cannot. All errors in it are reported at
once, with the name of the trigger and the setting.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.app.triggers.filters import Filter, FilterRefused
from headrace.app.triggers.http_target import checked_url
from headrace.wire.contract import durations

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,100}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class SettingsRefused(ValueError):
    """The errors of the file, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(slots=True)
class BatchSettings:
    records: int = 1
    bytes: int = 1_048_576
    wait_ms: int = 1_000


@dataclass(slots=True)
class RetrySettings:
    attempts: int = 8
    first_ms: int = 1_000
    longest_ms: int = 600_000


@dataclass(slots=True)
class Trigger:
    """One trigger, checked: exactly one of topic and pattern, one of url and function."""

    name: str
    topic: str | None = None
    pattern: str | None = None
    filter: Filter | None = None
    url: str | None = None
    function: str | None = None
    mode: str = "binary"
    type: str = "headrace.record"
    secret: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    allow_hosts: tuple[str, ...] = ()
    batch: BatchSettings = field(default_factory=BatchSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    concurrency: int = 1
    rate: float | None = None
    timeout_ms: int = 30_000
    memory_bytes: int | None = None


@dataclass(slots=True)
class TriggerFile:
    group: str
    triggers: list[Trigger]


def read(path: Path, environment: Mapping[str, str] = os.environ) -> TriggerFile:
    try:
        shape = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise SettingsRefused([f"there is no file {path}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsRefused([f"{path} is not TOML: {problem}"]) from None
    return parse(shape, environment)


def parse(shape: Mapping[str, Any], environment: Mapping[str, str]) -> TriggerFile:
    problems = [
        f"{name}: not a setting of this file; it has 'group' and [trigger.NAME]"
        for name in shape
        if name not in ("group", "trigger")
    ]
    group = shape.get("group", "triggers")
    if not isinstance(group, str) or not group:
        problems.append("group: a name is needed")
    entries = shape.get("trigger", {})
    if not isinstance(entries, dict) or not entries:
        problems.append("there is no trigger; begin one with [trigger.NAME]")
        entries = {}
    triggers = []
    for name, entry in entries.items():
        one = _Reader(name, entry if isinstance(entry, dict) else {}, problems)
        triggers.append(one.trigger(environment))
    if problems:
        raise SettingsRefused(problems)
    return TriggerFile(str(group), triggers)


class _Reader:
    """Takes settings out of one table and collects errors; settings that are left over are
    unknown."""

    def __init__(self, name: str, entry: dict[str, Any], problems: list[str]) -> None:
        self._name = name
        self._left = dict(entry)
        self._problems = problems

    def trigger(self, environment: Mapping[str, str]) -> Trigger:
        if not _NAME.fullmatch(self._name):
            self._wrong("", "a name has letters, digits, - and _, at most 100")
        trigger = Trigger(
            name=self._name,
            topic=self._text("topic"),
            pattern=self._pattern(),
            filter=self._filter(),
            url=self._text("url"),
            function=self._text("function"),
            mode=self._text("mode") or "binary",
            type=self._text("type") or "headrace.record",
            secret=self._secret(environment),
            headers=self._texts("headers"),
            allow_hosts=self._hosts(),
            batch=self._batch(),
            retry=self._retry(),
            concurrency=self._whole("concurrency", 1, least=1, most=1_000),
            rate=self._rate(),
            timeout_ms=self._duration("timeout", 30_000),
            memory_bytes=self._whole("memory_bytes", 0, least=0, most=1 << 40) or None,
        )
        self._check_together(trigger)
        for unknown in self._left:
            self._wrong(unknown, "not a setting of a trigger")
        return trigger

    def _check_together(self, trigger: Trigger) -> None:
        if (trigger.topic is None) == (trigger.pattern is None):
            self._wrong("topic", "give either a topic or a pattern")
        if (trigger.url is None) == (trigger.function is None):
            self._wrong("url", "give either a url or a function")
        if trigger.mode not in ("binary", "structured"):
            self._wrong("mode", "is 'binary' or 'structured'")
        if trigger.function is not None and not _FUNCTION.fullmatch(trigger.function):
            self._wrong("function", "is of the form package.module:function")
        if trigger.url is not None:
            try:
                checked_url(trigger.url, trigger.allow_hosts)
            except ValueError as problem:
                self._wrong("url", str(problem))

    def _wrong(self, setting: str, why: str) -> None:
        place = f"trigger.{self._name}" + (f".{setting}" if setting else "")
        self._problems.append(f"{place}: {why}")

    def _text(self, setting: str) -> str | None:
        text = self._left.pop(setting, None)
        if text is None or (isinstance(text, str) and text):
            return text
        self._wrong(setting, "is a text")
        return None

    def _pattern(self) -> str | None:
        pattern = self._text("pattern")
        if pattern is None:
            return None
        try:
            re.compile(pattern)
        except re.error as problem:
            self._wrong("pattern", f"is not a regular expression: {problem}")
        return pattern

    def _filter(self) -> Filter | None:
        expression = self._text("filter")
        try:
            return None if expression is None else Filter(expression)
        except FilterRefused as problem:
            self._wrong("filter", str(problem))
            return None

    def _secret(self, environment: Mapping[str, str]) -> bytes | None:
        variable = self._text("secret_env")
        if variable is None:
            return None
        if not environment.get(variable):
            self._wrong("secret_env", f"the environment variable {variable} is not set")
            return None
        return environment[variable].encode()

    def _texts(self, setting: str) -> dict[str, str]:
        table = self._left.pop(setting, {})
        if isinstance(table, dict) and all(isinstance(text, str) for text in table.values()):
            return table
        self._wrong(setting, "is a table of texts")
        return {}

    def _hosts(self) -> tuple[str, ...]:
        hosts = self._left.pop("allow_hosts", [])
        if isinstance(hosts, list) and all(isinstance(host, str) for host in hosts):
            return tuple(hosts)
        self._wrong("allow_hosts", "is a list of host names")
        return ()

    def _table(self, setting: str) -> _Reader:
        table = self._left.pop(setting, {})
        if not isinstance(table, dict):
            self._wrong(setting, "is a table")
            table = {}
        return _Reader(f"{self._name}.{setting}", table, self._problems)

    def _no_more(self) -> None:
        for unknown in self._left:
            self._wrong(unknown, "is not known here")

    def _batch(self) -> BatchSettings:
        table = self._table("batch")
        settings = BatchSettings(
            records=table._whole("records", 1, least=1, most=10_000),
            bytes=table._whole("bytes", 1_048_576, least=1, most=64 << 20),
            wait_ms=table._duration("wait", 1_000),
        )
        table._no_more()
        return settings

    def _retry(self) -> RetrySettings:
        table = self._table("retry")
        settings = RetrySettings(
            attempts=table._whole("attempts", 8, least=1, most=1_000),
            first_ms=table._duration("first", 1_000),
            longest_ms=table._duration("longest", 600_000),
        )
        table._no_more()
        return settings

    def _rate(self) -> float | None:
        rate = self._left.pop("rate", None)
        if rate is None:
            return None
        if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0:
            return float(rate)
        self._wrong("rate", "is a number of calls per second above 0")
        return None

    def _whole(self, setting: str, default: int, *, least: int, most: int) -> int:
        number = self._left.pop(setting, default)
        if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
            return number
        self._wrong(setting, f"is a whole number from {least} to {most}")
        return default

    def _duration(self, setting: str, default_ms: int) -> int:
        text = self._left.pop(setting, None)
        if text is None:
            return default_ms
        try:
            return durations.parse(str(text))
        except ValueError as problem:
            self._wrong(setting, str(problem))
            return default_ms
