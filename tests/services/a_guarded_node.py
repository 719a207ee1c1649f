"""A node whose authorizer is on, and the guide's lists of rights on it.

`WatchedNode` runs in this process and remembers every question about rights, so that a test can say
of each entry whether anything needed it. It has two doors: users log in at one, the test itself
comes through the other, as User:ANONYMOUS, who may do everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.connection import ClientSettings, connection
from headrace.client.errors import NoSuchTopic
from headrace.client.lookup.record_reader import RecordReader
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.principal import Principal
from headrace.wire.protocol.acls import Operation, ResourceType
from tests import patience
from tests.interop.brokers import Node
from tests.interop.secured import ADMIN, PASSWORD, STANDARD, client_settings, jaas
from tests.services.delay_process import DelayProcess

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "acls.md"
USERS = ("headrace-delay", "billing", "hooks", "ops", "clerk", "shop", "pipeline")
# librdkafka asks for a coordinator where no group is meant, and nothing waits for the answer.
FOR_NOTHING = ("group headrace-cli", "group headrace-without-group")
PROGRAM = str(Path(sys.executable).with_name("headrace"))

# Who asked, for which operation, on what; None: on any resource of the type.
Question = tuple[Any, ...]  # principal, operation, kind of resource, its name


class WatchedNode:
    def __init__(
        self, folder: Path, users: Iterable[str], patch: pytest.MonkeyPatch, **settings: str
    ) -> None:
        from tests.sockets.server.a_secured_server import SecuredServer  # needs more packages

        self.allowed: dict[Question, None] = {}
        self.refused: dict[Question, None] = {}
        self._watch(patch)
        given = {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas({ADMIN, *users}),
            "authorizer.class.name": STANDARD,
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }
        self._served = SecuredServer(folder, "PLAINTEXT", "SASL_PLAINTEXT", **given | settings)
        self.bootstrap = f"127.0.0.1:{self._served.port('SASL_PLAINTEXT')}"
        self.unguarded = SimpleNamespace(bootstrap=f"127.0.0.1:{self._served.port('PLAINTEXT')}")

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        allows, somewhere = Authorizer.allows, Authorizer.allows_somewhere

        def watched(asked: Authorizer, asking: Any, *what: Any, quietly: bool = False) -> bool:
            allowed = allows(asked, asking, *what, quietly=quietly)
            if allowed or not quietly:
                answered = self.allowed if allowed else self.refused
                answered[str(asking.principal), *what] = None
            return allowed

        def watched_somewhere(asked: Authorizer, asking: Any, *what: Any) -> bool:
            allowed = somewhere(asked, asking, *what)
            if allowed:
                self.allowed[str(asking.principal), *what, None] = None
            return allowed

        patch.setattr(Authorizer, "allows", watched)
        patch.setattr(Authorizer, "allows_somewhere", watched_somewhere)

    def close(self) -> None:
        self._served.__exit__()

    def denied(self) -> list[str]:
        return [f"{who} {in_words(*what)}" for who, *what in list(self.refused)]

    def unused(self, user: str) -> list[str]:
        """Entries of a user without which all that was allowed would have been allowed too."""
        entries = self._served.server.node.broker.image.acls
        mine = {id: one for id, one in entries.items() if one.principal == f"User:{user}"}
        asked = [what for who, *what in list(self.allowed) if who == f"User:{user}"]
        found = []
        for left_out, entry in mine.items():
            rest = Authorizer()
            rest.follow({id: one for id, one in mine.items() if id != left_out})
            if all(_allows(rest, user, *what) for what in asked):
                kind = ResourceType(entry.resource_type)
                found.append(in_words(Operation(entry.operation), kind, entry.resource_name))
        return found


def _allows(
    rules: Authorizer, user: str, operation: Operation, kind: ResourceType, name: str | None
) -> bool:
    asking = SimpleNamespace(principal=Principal("User", user), client_host="127.0.0.1")
    if name is None:
        return rules._decide_somewhere(asking, operation, kind)
    return bool(rules.rights(asking, kind, name) >> operation & 1)


def in_words(operation: Operation, kind: ResourceType, name: str | None) -> str:
    return f"{operation.name} {kind.name.lower()} {name}"


class Delay(DelayProcess):
    """The delay service as a user of its own."""

    def command(self) -> list[str]:
        settings = client_settings("headrace-delay")
        return [*super().command(), *(w for k, v in settings.items() for w in ("-X", f"{k}={v}"))]


class Guarded:
    def __init__(self, node: Node | WatchedNode, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.admin = self.as_user(ADMIN)

    def as_user(self, user: str) -> ClientSettings:
        return connection(bootstrap=self.node.bootstrap, overrides=client_settings(user))

    def config(self, user: str) -> str:
        path = self.folder / f"{user}.conf"
        path.write_text("".join(f"{k}={v}\n" for k, v in client_settings(user).items()))
        return str(path)

    def done(
        self, user: str, *words: str, stdin: str = "", within_s: float = 400
    ) -> subprocess.CompletedProcess[str]:
        where = ("--bootstrap", self.node.bootstrap, "--client-config", self.config(user))
        return subprocess.run(
            [PROGRAM, *words, *where], capture_output=True, text=True, timeout=within_s, input=stdin
        )

    def run(self, user: str, *words: str, stdin: str = "", within_s: float = 400) -> str:
        done = self.done(user, *words, stdin=stdin, within_s=within_s)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def failure(self, user: str, *words: str, stdin: str = "") -> str:
        """The one sentence with which a command fails."""
        done = self.done(user, *words, stdin=stdin)
        assert done.returncode == 1, (words, done.stdout, done.stderr)
        assert PASSWORD not in done.stderr
        return done.stderr

    def start(self, name: str, *words: str, user: str) -> subprocess.Popen[bytes]:
        """A command that goes on; what it says is in a file of that name."""
        environment = os.environ | {
            "HEADRACE_BOOTSTRAP": self.node.bootstrap,
            "HEADRACE_CLIENT_CONFIG": self.config(user),
            "PYTHONPATH": str(self.folder),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [PROGRAM, *words], env=environment, cwd=self.folder, stdout=log, stderr=log
            )

    def start_app(self, name: str, source: str, user: str) -> subprocess.Popen[bytes]:
        (self.folder / f"{name}.py").write_text(source)
        return self.start(name, "app", "run", f"{name}:app", user=user)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def allow(self, heading: str, *instead: tuple[str, str]) -> None:
        """What the guide says under a heading, with other names if need be."""
        for command in commands_under(heading):
            for old, new in instead:
                command = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", new, command)
            self.run(ADMIN, *shlex.split(command)[1:])

    def forbid(self, user: str, operation: str, *where: str) -> None:
        """Takes away what `allow` gave."""
        words = ("-p", user, "-o", operation, *where)
        gone = self.run(ADMIN, "acls", "remove", *words, "--yes", "--json")
        assert gone.strip() != "[]", f"nobody gave {words}"

    def denied(self) -> list[str]:
        """What users were refused."""
        if isinstance(self.node, WatchedNode):
            found = self.node.denied()
        else:  # the audit is in the log
            lines = self.node.log_text().splitlines()
            found = [line for line in lines if '"event":"denied"' in line]
        return [
            line
            for line in found
            if not any(name in line for name in FOR_NOTHING)
            and any(f"User:{user}" in line for user in USERS)
        ]

    def values(self, topic: str, count: int, within_s: float = 400.0) -> list[bytes]:
        deadline = time.monotonic() + within_s
        while True:
            found: list[bytes] = []
            with (
                contextlib.suppress(NoSuchTopic),  # services make some, in their time
                contextlib.closing(RecordReader(self.admin, topic)) as reader,
            ):
                found = [record.value or b"" for record in reader.records()]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, (topic, found, self.denied())
            time.sleep(0.05)


def commands_under(heading: str) -> list[str]:
    _, _, rest = GUIDE.read_text().partition(f"### {heading}\n")
    section = rest.partition("\n### ")[0].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    found = [line for block in blocks for line in block.splitlines() if line]
    assert found and all(line.startswith("headrace acls add ") for line in found)
    return found


def until(
    is_so: Callable[[], bool], within_s: float = 400.0, said: Callable[[], str] = str
) -> None:
    patience.until(is_so, lambda: f"it never came to be {said()[-3000:]}", within_s=within_s)


def places_of(secret: str, folder: Path) -> list[str]:
    """Files that hold it, apart from those by which clients are told of it."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names if not name.endswith(".conf")):
            with contextlib.suppress(FileNotFoundError):  # a running node renames and removes some
                if path.is_file() and secret.encode() in path.read_bytes():
                    found.append(str(path))
    return found


def ended(worker: subprocess.Popen[bytes]) -> int:
    """SIGTERM; what does not end by that is killed."""
    worker.send_signal(signal.SIGTERM)
    try:
        return worker.wait(400)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()
