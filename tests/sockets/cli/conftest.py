"""The command on a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace.cli.failure import Failure
from headrace.cli.main import app
from headrace.testing import Broker
from tests.restored_log import log_as_before


class CommandLine:
    """Runs `headrace WORDS` against one broker and hands out what was said."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._runner = CliRunner()

    @cached_property
    def admin(self) -> AdminClient:
        """For what a test looks at again and again: a command would connect each time."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def __call__(self, *words: str, stdin: str | bytes = "") -> str:
        """What the command wrote to standard output; it must succeed."""
        done = self._run(words, stdin)
        assert done.exit_code == 0, (done.output, done.exception)
        return str(done.stdout)

    def json(self, *words: str, stdin: str | bytes = "") -> Any:
        return json.loads(self(*words, "--json", stdin=stdin))

    def json_lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]

    def failure(self, *words: str, stdin: str | bytes = "") -> str:
        """The sentence with which the command fails."""
        done = self._run(words, stdin)
        assert isinstance(done.exception, Failure), (done.output, done.exception)
        return str(done.exception)

    def misuse(self, *words: str) -> str:
        """What a command says that was wrongly used."""
        done = self._run(words, "")
        assert done.exit_code == 2, (done.output, done.exception)
        return str(done.stderr)

    def notes(self, *words: str, stdin: str | bytes = "") -> str:
        """What a command that succeeds tells the person, on standard error."""
        done = self._run(words, stdin)
        assert done.exit_code == 0, (done.output, done.exception)
        return str(done.stderr)

    def exit_code(self, *words: str) -> int:
        return int(self._run(words, "").exit_code)

    def _run(self, words: tuple[str, ...], stdin: str | bytes) -> Any:
        with log_as_before():
            return self._runner.invoke(
                app, words, input=stdin, env={"HEADRACE_BOOTSTRAP": self.bootstrap}
            )


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def headrace(broker: Broker) -> CommandLine:
    return CommandLine(broker.bootstrap)
