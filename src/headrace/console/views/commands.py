"""The command line that does what a page does: every action shows it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from headrace.client.delay.schedules import When
from headrace.foreign_text import escaped

USUAL_BOOTSTRAP = "localhost:9092"
LONGEST_VALUE = 500


class Name(str):
    """Foreign text, passed as a separate word and not after an option."""

    __slots__ = ()


class Commands:
    """Shell commands for one cluster. They leave out its address if it is the usual one."""

    def __init__(self, bootstrap: str) -> None:
        self._at = [] if bootstrap == USUAL_BOOTSTRAP else ["-b", bootstrap]
        self._bootstrap = bootstrap

    def headrace(self, *words: str) -> str:
        """Returns one line that can be pasted into a shell; terminal control characters are shown
        as escapes."""
        return self._line(["headrace", *words, *self._at])

    def _line(self, words: Iterable[str]) -> str:
        """Puts a name that begins with a dash behind `--`, so that it is not read as an option."""
        apart: list[str] = []
        rest: list[str] = []
        for each in words:
            is_apart = isinstance(each, Name) and each.startswith("-")
            (apart if is_apart else rest).append(each)
        return escaped(shlex.join([*rest, *(["--", *apart] if apart else [])]))

    def list_topics(self) -> str:
        return self.headrace("topics", "list")

    def describe_topic(self, topic: str) -> str:
        return self.headrace("topics", "describe", Name(topic))

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, str] | None = None,
        delayed: bool = False,
    ) -> str:
        words = ["topics", "create", Name(topic)]
        if partitions is not None:
            words += ["--partitions", str(partitions)]
        for name, value in (settings or {}).items():
            words += ["--config", f"{name}={value}"]
        return self.headrace(*words, *(["--delayed"] if delayed else []))

    def grow_topic(self, topic: str, partitions: int) -> str:
        return self.headrace("topics", "alter", Name(topic), "--partitions", str(partitions))

    def change_settings(self, topic: str, to: Mapping[str, str], remove: Iterable[str]) -> str:
        words = ["topics", "alter", Name(topic)]
        for name, value in to.items():
            words += ["--config", f"{name}={value}"]
        for name in remove:
            words += ["--unset", name]
        return self.headrace(*words)

    def delete_topic(self, topic: str) -> str:
        return self.headrace("topics", "delete", Name(topic), "--yes")

    def empty_topic(self, topic: str) -> str:
        return self.headrace("topics", "empty", Name(topic), "--yes")

    def consume(
        self,
        topic: str,
        *,
        start: str = "beginning",
        partition: int | None = None,
        count: int | None = None,
        follow: bool = False,
    ) -> str:
        words = ["consume", Name(topic), f"--from={start}"]
        if partition is not None:
            words += ["--partition", str(partition)]
        if count is not None:
            words += ["--count", str(count)]
        return self.headrace(*words, *(["--follow"] if follow else []))

    def kcat(self, topic: str, partition: int, offset: int) -> str:
        words = ["kcat", "-C", "-b", self._bootstrap, "-t", topic, "-p", str(partition)]
        return escaped(shlex.join([*words, "-o", str(offset), "-c", "1", "-e"]))

    def produce(
        self,
        topic: str,
        value: str | None,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, str]] = (),
        when: When | None = None,
        id: str = "",
    ) -> str:
        """Returns the command; a value that is long or has several lines becomes `...`, which the
        user fills in."""
        words = ["produce", Name(topic)]
        if key is not None:
            words.append(f"--key={key}")
        for name, text in headers:
            words.append(f"--header={name}={text}")
        if partition is not None:
            words += ["--partition", str(partition)]
        words += [*_when(when or When()), *_given(id=id)]
        if value is None:
            return self.headrace(*words, "--tombstone")
        return f"{_printed(value)} | {self.headrace(*words)}"

    def list_groups(self) -> str:
        return self.headrace("groups", "list")

    def describe_group(self, group: str) -> str:
        return self.headrace("groups", "describe", Name(group))

    def reset_group(
        self, group: str, *, topic: str | None, way: Iterable[str], execute: bool
    ) -> str:
        which = ["--all-topics"] if topic is None else ["--topic", topic]
        done = ["--execute"] if execute else []
        return self.headrace("groups", "reset", Name(group), *which, *way, *done)

    def delete_group(self, group: str) -> str:
        return self.headrace("groups", "delete", Name(group), "--yes")

    def list_letters(self, topic: str | None = None, *, error: str = "", key: str = "") -> str:
        words = ["dead-letters", "list"] + ([] if topic is None else [Name(topic)])
        return self.headrace(*words, *_given(error=error, key=key))

    def show_letter(self, topic: str, letter_id: str) -> str:
        return self.headrace("dead-letters", "show", Name(topic), letter_id)

    def settle_letters(
        self,
        action: str,
        topic: str,
        letter_ids: Iterable[str],
        *,
        error: str = "",
        key: str = "",
        reason: str = "",
        rate: int | None = None,
        value: str | None = None,
    ) -> str:
        """`action` is redrive or discard; `value` is sent instead of the letter's own."""
        named = _given(error=error, key=key, reason=reason, rate=str(rate or ""))
        words = ["dead-letters", action, Name(topic), *letter_ids, *named]
        if value is None:
            return self.headrace(*words, "--execute")
        line = self.headrace(*words, "--value-file", "/dev/stdin", "--execute")
        return f"{_printed(value)} | {line}"

    def list_delayed(self, topic: str = "", *, key: str = "", id: str = "") -> str:
        return self.headrace("delay", "list", *_given(topic=topic, key=key, id=id))

    def cancel_delayed(self, topic: str, id: str, partition: int) -> str:
        return self.headrace(
            "delay", "cancel", Name(topic), Name(id), "--partition", str(partition)
        )

    def deliver_now(self, topic: str, id: str, partition: int) -> str:
        return self.headrace(
            "delay",
            "reschedule",
            Name(topic),
            Name(id),
            "--delay",
            "0ms",
            "--partition",
            str(partition),
        )

    def reschedule(self, topic: str, id: str, partition: int, when: When) -> str:
        where = ["--partition", str(partition)]
        return self.headrace("delay", "reschedule", Name(topic), Name(id), *_when(when), *where)

    def abort_transaction(self, transactional_id: str) -> str:
        return self.headrace("transactions", "abort", Name(transactional_id), "--execute")

    def abort_hanging(self, topic: str, partition: int, start_offset: int) -> str:
        partition_of = ["--topic", topic, "--partition", str(partition)]
        return self.headrace(
            "transactions", "abort", *partition_of, "--start-offset", str(start_offset), "--execute"
        )

    def show_outbox(self) -> str:
        return self.headrace("console", "--outbox", "postgresql://user@host/name")

    def outbox_status(self, database: str) -> str:
        """`database` is shown without its user and password."""
        return escaped(shlex.join(["headrace", "outbox", "status", database]))

    def retry_or_discard_rows(self, action: str, database: str, ids: Iterable[int]) -> str:
        words = ["headrace", "outbox", action, database, *map(str, ids)]
        return escaped(shlex.join(words + (["--yes"] if action == "discard" else [])))

    def list_brokers(self) -> str:
        return self.headrace("brokers", "list")

    def doctor(self) -> str:
        return self.headrace("doctor")


def _printed(value: str) -> str:
    """Returns the value; one that is long or has several lines becomes `...`, which the user fills
    in."""
    line = value if "\n" not in value and len(value) <= LONGEST_VALUE else "..."
    return escaped(shlex.join(["printf", "%s", line]))


def _given(**options: str) -> list[str]:
    return [word for name, value in options.items() if value for word in (f"--{name}", value)]


def _when(when: When) -> list[str]:
    """As `headrace produce` and `headrace delay reschedule` take it."""
    names = {"delay": "--delay", "deliver_at": "--deliver-at", "cron": "--cron",
             "cron_zone": "--cron-zone"}  # fmt: skip
    return [
        word
        for name, option in names.items()
        if when.get(name) is not None
        for word in (option, str(when.get(name)))
    ]
