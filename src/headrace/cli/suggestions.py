"""Commands that know what somebody meant who mistyped one, or knows it from another tool."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from headrace.near_names import did_you_mean

# Names in other tools -> the name here, among those that a group has.
SYNONYMS = {
    "ls": ("list", "topics"),
    "list": ("topics", "groups"),
    "show": ("describe", "list"),
    "get": ("describe", "list"),
    "info": ("describe",),
    "new": ("create", "add"),
    "add": ("create", "set"),
    "make": ("create",),
    "set": ("alter",),
    "change": ("alter",),
    "update": ("alter",),
    "config": ("alter", "brokers"),
    "rm": ("delete", "remove"),
    "del": ("delete", "remove"),
    "delete": ("remove",),
    "remove": ("delete",),
    "drop": ("delete", "remove"),
    "create": ("add", "new"),
    "send": ("produce",),
    "write": ("produce",),
    "publish": ("produce",),
    "producer": ("produce",),
    "read": ("consume",),
    "tail": ("consume",),
    "cat": ("consume",),
    "subscribe": ("consume",),
    "consumer": ("consume", "groups"),
    "consumers": ("groups",),
    "offsets": ("groups",),
    "lag": ("groups",),
    "configs": ("brokers", "topics"),
    "cluster": ("brokers",),
    "nodes": ("brokers",),
    "server": ("start",),
    "serve": ("start",),
    "run": ("start",),
    "up": ("start",),
    "check": ("doctor",),
    "dlq": ("dead-letters",),
    "schedule": ("delay",),
    "permissions": ("acls",),
    "dump": ("segment",),
}


# The same for options, where no other of ours is near: a sentence each.
OPTIONS_ELSEWHERE = {
    "--topic": "Give the topic as an argument, without an option.",
    "--group": "Give the group as an argument, without an option.",
    "--message": "Values come from standard input: echo hi | headrace produce TOPIC",
    "--value": "Values come from standard input: echo hi | headrace produce TOPIC",
    "--port": "Use --listen HOST:PORT.",
    "--host": "Use --listen HOST:PORT.",
}


LONGEST_SUMMARY = 400


class Commands(TyperGroup):
    """A group of commands that knows what somebody meant, and shows whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As the original, but a summary that is longer than the line is wrapped, not cut."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(LONGEST_SUMMARY))
            for name, command in known
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        word = str(args[0]) if args else ""
        known = self.list_commands(ctx)
        if word and not word.startswith("-") and word not in known and not ctx.resilient_parsing:
            if word == "help":
                ctx.fail(f"Try `{ctx.command_path} --help`.")
            meant = did_you_mean(word, known, SYNONYMS) or f" There are {', '.join(known)}."
            ctx.fail(f"There is no command {word}.{meant}")
        return super().resolve_command(ctx, args)
