"""Who says where the cluster is, and what librdkafka is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.connection import (
    LOG,
    ONLY_ERRORS,
    addresses,
    connected,
    connection,
    program_settings,
)
from headrace.client.errors import ClientError


def test_without_a_word_it_is_localhost() -> None:
    assert connection().bootstrap == "localhost:9092"


def test_the_strongest_word_wins(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\n\nbootstrap.servers = file:1\nsecurity.protocol=ssl\n! old style\n")
    assert connection(config_file=file).bootstrap == "file:1"
    assert connection(config_file=file, bootstrap="option:2").bootstrap == "option:2"
    strongest = connection(
        config_file=file, bootstrap="option:2", overrides={"bootstrap.servers": "x:3"}
    )
    assert strongest.bootstrap == "x:3"
    assert strongest.settings["security.protocol"] == "ssl"


def test_programs_find_their_cluster_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsecurity.protocol=ssl\n")
    monkeypatch.delenv("HEADRACE_BOOTSTRAP", raising=False)
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(file))
    assert connected(None, None).settings == {
        "bootstrap.servers": "file:1",
        "security.protocol": "ssl",
    }
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "environment:2")
    assert connected(None, None).bootstrap == "environment:2"
    assert connected("program:3", {"client.id": "me"}).settings == {
        "bootstrap.servers": "program:3",
        "security.protocol": "ssl",
        "client.id": "me",
    }


def test_what_the_person_sets_wins_over_what_a_command_wants() -> None:
    at = connection(overrides={"linger.ms": "100", "client.id": "me"})
    settings = at.with_settings(linger_ms=5, enable_idempotence=True)
    assert settings["linger.ms"] == "100"
    assert settings["enable.idempotence"] is True
    assert settings["client.id"] == "me"


def test_librdkafka_is_quiet_until_asked_to_debug() -> None:
    assert "log_level" in connection().with_settings()
    assert "log_level" not in connection(overrides={"debug": "broker"}).with_settings()


def test_a_line_that_says_nothing_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\na.b=c=d\nlinger.ms\n")
    with pytest.raises(ClientError, match=r"Line 3 of .*client\.properties"):
        connection(config_file=file)
    file.write_text("a.b=c=d\n")
    assert connection(config_file=file).settings["a.b"] == "c=d"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="Cannot read .*No such file"):
        connection(config_file=tmp_path / "missing")


@pytest.mark.parametrize(
    ("bootstrap", "found"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://h:19092", [("h", 19092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_of_a_bootstrap_list(bootstrap: str, found: list[tuple[str, int]]) -> None:
    assert addresses(bootstrap) == found


def test_an_address_without_a_number_is_refused() -> None:
    with pytest.raises(ClientError, match="HOST:PORT"):
        addresses("localhost:http")


def test_what_librdkafka_says_of_a_connection_that_it_gave_up_itself_is_not_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = "GETPID [headrace#producer-1] [thrd:main]: Failed to acquire idempotence PID from broker"
    for why in (
        "Local: Broker handle destroyed without termination: retrying",
        "Local: Timed out: retrying",
    ):
        LOG.warning("%s 127.0.0.1:9092/bootstrap: %s", said, why)
    assert [record.getMessage().rsplit("bootstrap: ")[1] for record in caplog.records] == [
        "Local: Timed out: retrying"
    ]


@pytest.mark.parametrize(("given", "read"), [(True, True), ("True", True), (False, False)])
def test_the_setting_that_confluent_kafka_refuses_as_a_text_is_none(
    given: str | bool, read: bool
) -> None:
    at = connected("localhost:1", {ONLY_ERRORS: given})
    assert program_settings(at, {})[ONLY_ERRORS] is read
