"""The `headrace` command: its table of contents, and what happens when a command fails.

A command's module is loaded when that command is called, so `headrace start` loads no client and
`headrace --help` loads no command at all. Exit codes: 0 done, 1 failed (one sentence on standard
error), 2 wrongly used, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import headrace
from headrace.cli import output
from headrace.cli.failure import Failure

# command -> what `headrace --help` says of it; the module has the same name (_ for -), holds `app`
COMMANDS = {
    "start": "Start a node: a Kafka cluster of one.",
    "topics": "List, describe, create, alter and delete topics.",
    "produce": "Write lines to a topic.",
    "consume": "Read a topic.",
    "delay": "Delayed messages: enable, list, show, cancel, reschedule.",
    "groups": "List, describe, reset and delete consumer groups.",
    "dead-letters": "What could not be handled: list, show, send again, put away.",
    "app": "Run an application's handlers, describe them.",
    "triggers": "Records call functions and HTTP endpoints.",
    "pipeline": "Data pipelines on Spark: run, list, status, stop, reset, new.",
    "lake": "Topics as lake tables: fill, compact, versions, show.",
    "track": "Web tracking: a collector of events, and made-up visitors.",
    "transactions": "List, describe and abort transactions.",
    "acls": "Who may do what: list, add and remove access control entries.",
    "quotas": "Limits of users, clients and addresses: list, set, remove.",
    "users": "Users who log in by SCRAM: list, add, remove.",
    "security": "Certificates and a first user for a node.",
    "segment": "Look into Kafka's files on disk.",
    "doctor": "Check this machine, a cluster, or a topic's safety.",
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
    return f"headrace.cli.{command.replace('-', '_')}"


class CommandOnDemand(TyperCommand):
    """Stands for a command in the list; the real one is loaded when it gets its arguments."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        module = import_module(module_of(str(self.name)))
        return get_command(module.app).make_context(info_name, args, parent=parent, **extra)


class TableOfContents(TyperGroup):
    """All commands, none of them loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return CommandOnDemand(cmd_name, short_help=COMMANDS[cmd_name], help=COMMANDS[cmd_name])


app = typer.Typer(cls=TableOfContents, no_args_is_help=True, **output.LOOK)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """What every command has in common: nothing but the version."""


def run() -> None:
    """The entry point: no failure of a command ends in a traceback."""
    try:
        app()
    except Failure as failure:
        typer.echo(f"headrace: {failure}", err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as in `headrace consume t | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
