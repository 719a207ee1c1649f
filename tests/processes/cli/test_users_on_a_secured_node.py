"""From `headrace security init` to a node that asks for passwords, and the users on it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.connection import read_config_file
from tests.command_in_process import run_command
from tests.sockets.cli.conftest import CommandLine

HEADRACE = [sys.executable, "-m", "headrace"]


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secured") / "security"
    done = run_command("security", "init", "--folder", str(folder), "--host", "kafka.example.org")
    assert done.returncode == 0, done.stderr
    assert "kafka.example.org" in done.stderr and "start --secure" in done.stdout
    return folder


@pytest.fixture(scope="module")
def address(security: Path) -> Iterator[str]:
    """Of a node that was started with it."""
    command = [*HEADRACE, "start", "--secure", "--security", str(security), "--json"]
    command += ["--listen", "127.0.0.1:0", "--data", str(security.parent / "data")]
    log = (security.parent / "log").open("w")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as node:
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            assert line, (security.parent / "log").read_text()
            yield json.loads(line)["address"]
            node.terminate()
            assert node.wait(300) == 0
        finally:
            node.kill()


@pytest.fixture
def headrace(address: str, security: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(security / "admin.properties"))
    return CommandLine(address)


def test_secrets_are_for_their_owner_alone(security: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in security.iterdir()}
    assert modes == {
        "ca.pem": 0o644,
        "server.properties": 0o644,
        "ca-key.pem": 0o600,
        "server.pem": 0o600,
        "first-users.json": 0o600,
        "admin.properties": 0o600,
        "admin.conf": 0o600,
    }
    password = read_config_file(security / "admin.conf")["sasl.password"]
    assert password not in (security / "first-users.json").read_text()
    assert read_config_file(security / "admin.properties") == read_config_file(
        security / "admin.conf"
    ), "one says by Java's names what the other says by librdkafka's"


def test_nothing_is_overwritten(security: Path) -> None:
    before = (security / "ca.pem").read_text()
    done = run_command("security", "init", "--folder", str(security))
    assert done.returncode == 1 and "is there already" in done.stderr
    assert (security / "ca.pem").read_text() == before


def test_commands_log_in_by_the_client_file(headrace: CommandLine) -> None:
    headrace("topics", "create", "orders")
    headrace("produce", "orders", stdin="one\ntwo\n")
    assert headrace("consume", "orders").splitlines() == ["one", "two"]
    assert [topic["name"] for topic in headrace.json("topics", "list")] == ["orders"]


def test_who_has_no_password_is_told_so(
    address: str, security: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_CLIENT_CONFIG", raising=False)
    stranger = tmp_path / "stranger.properties"
    text = (security / "admin.properties").read_text()
    stranger.write_text(text.replace('username="admin"', 'username="mallory"'))
    said = CommandLine(address).failure("topics", "list", "--client-config", str(stranger))
    assert "invalid credentials" in said


def test_users_come_and_go(headrace: CommandLine, address: str, security: Path) -> None:
    assert [user["name"] for user in headrace.json("users", "list")] == ["admin"]
    headrace("users", "add", "alice", stdin="wonder\n")
    headrace("users", "add", "bob", "--mechanism", "scram-sha-512", stdin="builder\n")
    generated = headrace.json("users", "add", "carol", "--generate")["password"]
    assert headrace.json("users", "list")[1:3] == [
        {"name": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
        {"name": "bob", "mechanisms": {"SCRAM-SHA-512": 4096}},
    ]
    for user, password in (("alice", "wonder"), ("bob", "builder"), ("carol", generated)):
        settings = read_config_file(security / "admin.conf")
        producer = Producer(
            settings
            | {
                "bootstrap.servers": address,
                "sasl.username": user,
                "sasl.password": password,
                "log_level": 0,
            }
        )
        assert producer.list_topics(timeout=300).brokers
    headrace("users", "remove", "bob")
    assert "There is no user bob" in headrace.failure("users", "remove", "bob")
    assert "bob" not in headrace("users", "list")


def test_who_is_new_may_do_nothing_until_it_is_allowed(
    headrace: CommandLine, address: str, security: Path, tmp_path: Path
) -> None:
    """`--secure` has an authorizer; the first user may do everything and give rights away."""
    password = headrace.json("users", "add", "erin", "--generate")["password"]
    settings = read_config_file(security / "admin.conf") | {
        "bootstrap.servers": address,
        "sasl.username": "erin",
        "sasl.password": password,
    }
    mine = tmp_path / "erin.conf"
    mine.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    as_erin = ("--client-config", str(mine))
    headrace("topics", "create", "letters")
    assert "letters" not in headrace("topics", "list", *as_erin)
    for words in (("produce", "letters"), ("users", "list"), ("acls", "list")):
        said = headrace.failure(*words, *as_erin, stdin="x\n")
        assert "may not" in said or "not allowed" in said, (words, said)
    headrace("acls", "add", "-p", "erin", "--producer", "--topic", "letters")
    headrace("produce", "letters", *as_erin, stdin="dear admin\n")
    assert headrace("consume", "letters").splitlines() == ["dear admin"]
    assert "may not" in headrace.failure("consume", "letters", *as_erin)


def test_what_cannot_be_is_a_sentence(headrace: CommandLine) -> None:
    assert "at least one character" in headrace.failure("users", "add", "dave", stdin="\n")
    assert "MAGIC is not a SCRAM mechanism" in headrace.failure(
        "users", "add", "dave", "--mechanism", "MAGIC", stdin="x\n"
    )


def test_the_delay_service_of_a_secured_node_works(headrace: CommandLine) -> None:
    """Its child logs in through a door of its own."""
    headrace("topics", "create", "reminders")
    headrace("delay", "enable", "reminders")
    headrace("produce", "reminders.delay", "--header", "headrace-delay=10ms", stdin="now\n")
    read = headrace("consume", "reminders", "--follow", "--count", "1")
    assert read.splitlines() == ["now"]
    assert os.environ.get("HEADRACE_DELAY_PASSWORD") is None


def test_a_user_comes_with_a_file_by_which_clients_get_in(
    headrace: CommandLine, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace("acls", "add", "-p", "fay", "--operation", "describe", "--topic", "*")
    for name in ("fay.conf", "fay.properties"):
        file = tmp_path / name
        told = headrace.json("users", "add", "fay", "--generate", "--client-file", str(file))
        assert told["client_file"] == str(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ("sasl.jaas.config" in file.read_text()) is (file.suffix == ".properties")
        assert read_config_file(file)["sasl.password"] == told["password"]
        assert headrace("topics", "list", "--client-config", str(file)) is not None
    before = [user["name"] for user in headrace.json("users", "list")]
    said = headrace.failure("users", "add", "gil", "--generate", "--client-file", str(file))
    assert "is there already" in said
    nowhere = str(tmp_path / "no" / "folder")
    assert "no folder" in headrace.failure(
        "users", "add", "gil", "--generate", "--client-file", nowhere
    )
    new = str(tmp_path / "gil.conf")
    for password in ("back\\slash", "space "):
        said = headrace.failure("users", "add", "gil", "--client-file", new, stdin=f"{password}\n")
        assert "cannot hold" in said
    assert [user["name"] for user in headrace.json("users", "list")] == before, "all before or none"
