"""Commands that find no broker say so in one sentence, after the second in which they looked."""

from __future__ import annotations

import json

import pytest

from tests.command_in_process import run_command
from tests.sockets.nobody import nobody

pytestmark = pytest.mark.integration  # each looks for a broker for a second


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["topics", "create", "orders"],
        ["produce", "orders"],
        ["consume", "orders"],
    ],
)
def test_nobody_answers_is_one_sentence(words: list[str]) -> None:
    address = nobody()
    said = run_command(*words, "--bootstrap", address, stdin="x\n")
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr == (
        f"headrace: No Kafka broker answers at {address}. "
        "Start one with `headrace start`, or name yours with --bootstrap.\n"
    )


def test_a_failure_is_json_for_programs() -> None:
    failed = run_command("topics", "list", "--json", "-b", nobody())
    assert (failed.returncode, failed.stdout) == (1, "")
    told = json.loads(failed.stderr)
    assert told["exit_code"] == 1 and told["error"].startswith("No Kafka broker answers")


def test_the_doctor_answers_in_json_and_knows_that_nothing_listens() -> None:
    said = run_command("doctor", "--json", "--bootstrap", nobody())
    findings = {finding["about"]: finding for finding in json.loads(said.stdout)}
    assert said.returncode == 1
    assert findings["cluster"]["state"] == "wrong"
    assert findings["python"]["state"] == "good"
