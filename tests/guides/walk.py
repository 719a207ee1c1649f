"""A reader who types every command of the guides, in order, on one node and in one folder.

Blocks run as they stand, but for the address: the walk's node has a port of its own. Every command
must end with 0, or do what the note before its block says (`blocks.py`).
"""

from __future__ import annotations

import ast
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headrace.cli.main import app
from tests.guides.blocks import RUNNABLE, Block, words_of
from tests.interop.brokers import HeadraceNode

# Ends only what hangs. A command of a guide answers in seconds, on a machine that has time.
LONGEST_S = 180.0
BASH = ["bash", "-euo", "pipefail", "-c"]


class Beside:
    """A command that runs while the reader goes on in another terminal."""

    def __init__(
        self, block: Block, script: str, folder: Path, environment: dict[str, str]
    ) -> None:
        self.block = block
        self._screen = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self.process = subprocess.Popen(
            [*BASH, script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._screen,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def shown(self) -> str:
        self._screen.seek(0)
        return self._screen.read().decode(errors="replace")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while text not in self.shown():
            if self.process.poll() is not None or time.monotonic() > deadline:
                shown = self.shown()
                if text in shown:
                    return
                self.stop()
                raise AssertionError(f"{self.block.place} never said {text!r}:\n{shown}")
            time.sleep(0.05)

    def stop(self) -> str:
        """Ctrl-C reaches everything in the terminal, as it would from a keyboard."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(LONGEST_S / 6)
                break
        shown = self.shown()
        self._screen.close()
        assert self.process.returncode in (0, 130, -signal.SIGINT), (
            f"{self.block.place} ended with {self.process.returncode} after Ctrl-C:\n{shown}"
        )
        return shown


class Walk:
    def __init__(
        self,
        folder: Path,
        *,
        node: HeadraceNode,
        replacing: dict[str, str],
        here: tuple[str, ...] = (),
    ) -> None:
        """Commands of a console that begin as in `here` run in this process, with its Spark."""
        self.folder = self.folder_now = folder
        self.node = node
        self._here = here
        self._terminal = folder / ".terminal"
        self.replacing = {"localhost:9092": node.bootstrap} | replacing
        programs = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "PATH": programs + os.pathsep + os.environ["PATH"],
            "HEADRACE_BOOTSTRAP": node.bootstrap,
            "COLUMNS": "200",
        }
        self._beside: list[Beside] = []
        self._names: dict[str, Any] = {}

    def read(self, blocks: list[Block]) -> None:
        """One guide from top to bottom; its programs share their names, as in a notebook."""
        self._names = {"__name__": "guide"}
        self.folder_now = self.folder
        before = Path.cwd()
        os.chdir(self.folder)  # where the reader's programs look for files
        try:
            for block in blocks:
                self._do(block)
        finally:
            os.chdir(before)
            while self._beside:
                self._beside.pop().stop()

    def _do(self, block: Block) -> None:
        match words_of(block.note):
            case []:
                if block.language in RUNNABLE:
                    self._run(block)
            case ["file", name]:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_text(self._as_here(block.body))
            case ["until", text]:
                running = self._begin(block)
                running.wait_for(text)
                running.stop()
            case ["beside", "until", text]:
                running = self._begin(block)
                self._beside.append(running)
                running.wait_for(text)
            case ["stop"]:
                self._beside.pop().stop()
            case ["kill", "the", "node"]:
                self.node.kill()
                self.node.start()
            case ["fails"]:
                self._run(block, must_fail=True)
            case ["skip:", *why]:
                assert why, f"{block.place} is skipped without a reason"
            case _:
                raise AssertionError(f"{block.place} has a note that nobody knows: {block.note}")

    def _run(self, block: Block, *, must_fail: bool = False) -> None:
        if block.language == "python":
            self._run_program(block)
        elif block.language == "py":
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
            compile(block.body, block.place, "exec", flags)
        elif block.language == "sh":
            self._run_script(block, block.body, must_fail=must_fail)
        else:
            shown = []
            for command in block.commands():
                run = self._run_here if command.startswith(self._here) else self._run_script
                shown.append(run(block, command, must_fail=must_fail))
            rows = [line.split() for line in "\n".join(shown).splitlines()]
            for heading in block.headings():
                assert heading in rows, f"{block.place} shows {heading}, the command does not"
                below = rows[rows.index(heading) + 1 :]
                assert below and below[0], f"{block.place} shows rows below {heading}"

    def _run_program(self, block: Block) -> None:
        code = compile(self._as_here(block.body), block.place, "exec")
        before = set(self._names)
        exec(code, self._names)
        for name in sorted(set(self._names) - before):
            if name.startswith("test_"):
                self._names[name]()

    def _run_here(self, block: Block, command: str, *, must_fail: bool) -> str:
        words = shlex.split(self._as_here(command))
        assert words[0] == "headrace", f"{block.place}: {command} is not a command of ours"
        ended = CliRunner().invoke(app, words[1:], env=self.environment)
        said = f"{ended.output}{ended.exception or ''}"
        assert (ended.exit_code != 0) == must_fail, (
            f"{block.place} ended with {ended.exit_code}\n{command}\n{said}"
        )
        return ended.output

    def _run_script(self, block: Block, script: str, *, must_fail: bool) -> str:
        # The reader's terminal remembers `export` and `cd` from one block to the next.
        remember = f"\n{{ pwd; env -0; }} > {shlex.quote(str(self._terminal))}"
        ended = subprocess.run(
            [*BASH, self._as_here(script) + remember],
            cwd=self.folder_now,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
        )
        failed = ended.returncode != 0
        assert failed == must_fail, (
            f"{block.place} ended with {ended.returncode}\n{script}\n{ended.stdout}"
        )
        if not failed:
            self._recall()
        return ended.stdout

    def _recall(self) -> None:
        folder, _, variables = self._terminal.read_text().partition("\n")
        self.folder_now = Path(folder)
        self.environment = dict(pair.split("=", 1) for pair in variables.split("\0") if "=" in pair)

    def _begin(self, block: Block) -> Beside:
        script = block.body if block.language == "sh" else "\n".join(block.commands())
        return Beside(block, self._as_here(script), self.folder_now, self.environment)

    def _as_here(self, text: str) -> str:
        for said, here in self.replacing.items():
            text = text.replace(said, here)
        return text
