"""The `headrace` command: its table of contents, and what happens when a command fails.

A command's module is loaded when that command is called, so `headrace start` loads no client and
`headrace --help` loads no command at all. Exit codes: 0 done, 1 failed (one sentence on standard
error, with --json one JSON object), 2 wrongly used, 130 interrupted. Nothing is wrong when the
reader of the output has seen enough, as in `headrace consume t | head`: 0.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException
from typer.main import get_command

import headrace
from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.suggestions import OPTIONS_ELSEWHERE, Commands
from headrace.foreign_text import indented
from headrace.log_lines import print_warnings_escaped
from headrace.near_names import did_you_mean

# command -> what `headrace --help` says of it; its module has the same name (_ for -), holds `app`
COMMANDS = {
    "start": "Start a node, or a cluster of several on this machine.",
    "format": "Make the data folder of a node, as kafka-storage does.",
    "demo": "A demonstration: transfers while processes are killed.",
    "topics": "List, describe, create, alter and delete topics.",
    "produce": "Write lines to a topic.",
    "consume": "Read a topic.",
    "delay": "Delayed messages: enable, list, show, cancel, reschedule.",
    "cluster": "Show the state of a cluster; move leaders and replicas.",
    "brokers": "List brokers, show and change their settings.",
    "groups": "List, describe, reset and delete consumer groups.",
    "dead-letters": "Dead letters: list, show, send again, discard.",
    "backlog": "Show the lag of groups and its causes, and catch up.",
    "replay": "Replay records: to a group, or into another topic.",
    "app": "Run an application's handlers, describe them.",
    "outbox": "A database change and its message as one: tables, relay.",
    "triggers": "Records call functions and HTTP endpoints.",
    "pipeline": "Data pipelines on Spark: run, list, status, stop, reset, new.",
    "lake": "Topics as lake tables: fill, compact, versions, show.",
    "ship": "Ship log files and host metrics into topics.",
    "logs": "Find log lines, in their topic or their table.",
    "track": "Web tracking: a collector of events, and made-up visitors.",
    "transactions": "List, describe and abort transactions.",
    "acls": "ACLs: list, add and remove access control entries.",
    "quotas": "Limits of users, clients and addresses: list, set, remove.",
    "users": "Users who log in by SCRAM: list, add, remove.",
    "security": "Certificates and a first user for a node.",
    "profile": "Clusters by name: create, use, list, show, delete.",
    "segment": "Inspect Kafka's files on disk.",
    "http": "Send and receive over HTTP, without a Kafka client.",
    "console": "Look at a cluster in a browser, repair what is stuck.",
    "doctor": "Check this machine, a cluster, or a topic's safety.",
}

# The sections of `headrace --help`: a purpose, its commands, and an example.
PURPOSES = {
    "Start a broker": (
        ("start", "format", "demo", "doctor"),
        "headrace start --brokers 3",
    ),
    "Topics and records": (
        ("topics", "produce", "consume", "delay", "http"),
        "echo 'tom:coffee' | headrace produce orders --key-separator :",
    ),
    "Groups, lag and repair": (
        ("groups", "backlog", "replay", "dead-letters", "transactions"),
        "headrace groups reset billing --topic orders --to-time 2026-01-31T12:00",
    ),
    "Applications and data": (
        ("app", "outbox", "triggers", "pipeline", "lake", "ship", "logs", "track"),
        "headrace app run billing:app --workers 4",
    ),
    "Clusters and security": (
        ("cluster", "brokers", "acls", "quotas", "users", "security", "profile"),
        "headrace profile create production --bootstrap kafka-1:9092",
    ),
    "Inspect": (
        ("console", "segment"),
        "headrace console --bootstrap kafka-1:9092",
    ),
}

# Which folder the module of a command lies in, by what the command is about.
AREAS = {
    "applications": (
        "app",
        "outbox",
        "triggers",
        "pipeline",
        "lake",
        "ship",
        "logs",
        "track",
    ),
    "cluster": (
        "cluster",
        "brokers",
        "acls",
        "quotas",
        "users",
        "profile",
    ),
    "node": (
        "start",
        "format",
        "demo",
        "security",
        "segment",
        "http",
        "console",
        "doctor",
    ),
    "records": (
        "topics",
        "produce",
        "consume",
        "delay",
        "groups",
        "dead-letters",
        "backlog",
        "replay",
        "transactions",
    ),
}

# Rich keeps line breaks within a paragraph, so there are none.
ABOUT = (
    "An event-streaming platform in Python that speaks the Kafka protocol.\n\n"
    "`headrace start` gives you a broker on localhost:9092. Most other commands work on any Kafka "
    "cluster: name it with --bootstrap or HEADRACE_BOOTSTRAP."
)

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def module_of(command: str) -> str:
    area = next(area for area, commands in AREAS.items() if command in commands)
    return f"headrace.cli.{area}.{command.replace('-', '_')}"


@functools.cache
def command_of(name: str) -> Any:
    """Built once in a process: it takes 3 to 6 ms."""
    return get_command(import_module(module_of(name)).app)


class CommandOnDemand(TyperCommand):
    """Stands for a command in the list; the real one is loaded when it gets its arguments."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        command = command_of(str(self.name))
        return command.make_context(info_name, args, parent=parent, **extra)


class TableOfContents(Commands):
    """All commands, none of them loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names, _ in PURPOSES.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Grouped by purpose, with an example each."""
        for purpose, (names, example) in PURPOSES.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])
                formatter.write_text(f"Example: {example}")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # or typer would end with 1
            raise typer.Exit(_stop_writing()) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        (panel,) = (
            f"{purpose}: {example}"
            for purpose, (names, example) in PURPOSES.items()
            if cmd_name in names
        )
        words = COMMANDS[cmd_name]
        return CommandOnDemand(cmd_name, short_help=words, help=words, rich_help_panel=panel)


app = typer.Typer(no_args_is_help=True, **{**output.LOOK, "cls": TableOfContents})


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The options of every command: only the version."""


def run() -> None:
    """The entry point: no failure of a command ends in a traceback."""
    print_warnings_escaped()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except Failure as failure:
        code = _fail(str(failure), EXIT_FAILED, code_of_kafka=failure.code)
    except TyperException as misuse:
        code = _tell_misuse(misuse)
    except typer.Abort:
        code = _fail("Nothing was done.", EXIT_FAILED)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        if sys.stderr.isatty():
            output.note_after_interrupt("Stopped.")
    except BrokenPipeError:
        code = _stop_writing()
    sys.exit(code if isinstance(code, int) else 0)


def _fail(
    sentence: str, exit_code: int, *, code_of_kafka: str | None = None, usage: str | None = None
) -> int:
    """With --json one line of JSON for the program that called; standard output is the answer's."""
    if "--json" in sys.argv[1:]:
        about: dict[str, Any] = {"error": sentence, "exit_code": exit_code}
        if code_of_kafka is not None:
            about["code"] = code_of_kafka
        typer.echo(output.json_line(about), err=True)
        return exit_code
    if usage is not None:
        typer.echo(usage, err=True)
    typer.echo(f"headrace: {indented(sentence)}", err=True)
    return exit_code


def _tell_misuse(misuse: TyperException) -> int:
    """How it is used, what was wrong, and where the rest is told."""
    context: Any = getattr(misuse, "ctx", None)
    if type(misuse).__name__ == "NoArgsIsHelpError":  # its message is the help, or "" once shown
        typer.echo(misuse.format_message(), err=True, nl=bool(misuse.format_message()))
        return misuse.exit_code
    sentence = misuse.format_message()
    wrong = getattr(misuse, "option_name", None)
    if wrong is not None and context is not None and type(misuse).__name__ == "NoSuchOption":
        known = [option for each in context.command.params for option in each.opts]
        meant = did_you_mean(wrong, known)
        if not meant and wrong in OPTIONS_ELSEWHERE:
            meant = f" {OPTIONS_ELSEWHERE[wrong]}"
        sentence = f"There is no option {wrong}.{meant}"
    if context is None:
        return _fail(sentence, misuse.exit_code)
    usage = f"{context.get_usage()}\nTry '{context.command_path} --help' for its options."
    return _fail(sentence, misuse.exit_code, usage=usage)


def _stop_writing() -> int:
    """The reader has gone; discard what is still buffered, or the exit would fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
