"""The command lines that do what the page of a group's backlog does. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.access.backlog import GoingBack
from headrace.console.views.commands import Commands, Name
from headrace.services.replay.selection import Selection

USUAL_DESTINATION = "parked"  # a folder, for a console that has no place of its own


@dataclass(slots=True)
class BacklogCommands:
    commands: Commands

    def status(self, group: str) -> str:
        return self.commands.headrace("backlog", "status", Name(group))

    def widen(self, topic: str, group: str, times: int) -> str:
        return self._line("widen", topic, group, "--times", str(times))

    def abort(self, topic: str, group: str) -> str:
        return self._line("widen", topic, group, "--abort")

    def park(self, topic: str, group: str, destination: str, reason: str = "") -> str:
        why = ["--reason", reason] if reason else []
        return self._line("park", topic, group, "--to", destination or USUAL_DESTINATION, *why)

    def bring_back(
        self, topic: str, group: str, wanted: Selection, rate: int, destination: str
    ) -> str:
        words = ["--from", destination or USUAL_DESTINATION]
        if wanted.key is not None:
            words += ["--key", wanted.key.decode("utf-8", "replace")]
        for name, value in wanted.headers.items():
            words += ["--header", f"{name}={value}"]
        if wanted.where is not None:
            words += ["--where", wanted.where]
        return self._line("bring-back", topic, group, *words, "--rate", str(rate))

    def expire(self, topic: str, group: str, older_than: str) -> str:
        return self._line("expire", topic, group, "--older-than", older_than)

    def _line(self, action: str, topic: str, group: str, *more: str) -> str:
        words = ["backlog", action, Name(topic), "--group", group, *more]
        return self.commands.headrace(*words, "--execute")


def going_back_command(asked: GoingBack, commands: Commands) -> str:
    words = ["replay", "group", asked.group, "--topic", asked.topic]
    if asked.since_ms is not None:
        words += ["--since", str(asked.since_ms)]
    if asked.from_offset is not None:
        words += ["--from-offset", str(asked.from_offset)]
    return commands.headrace(*words, "--execute")
