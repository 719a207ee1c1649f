"""`headrace profile`: clusters by name, and which one a command then uses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from headrace.cli.failure import Failure
from headrace.cli.node.console import MOST_CLUSTERS
from headrace.cli.options import profiles
from headrace.cli.options.cluster_options import At
from tests.command_in_process import run_command


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("HEADRACE_BOOTSTRAP", "HEADRACE_CLIENT_CONFIG", "HEADRACE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def settings_of(at: At) -> dict[str, object]:
    with at.connection() as cluster:
        return dict(cluster.settings)


def create(name: str, bootstrap: str, *words: str) -> None:
    said = run_command("profile", "create", name, "--bootstrap", bootstrap, *words)
    assert said.returncode == 0, said.stderr


def test_the_last_created_profile_is_in_use_until_another_one_is_chosen() -> None:
    create("test", "test-1:9092")
    create("production", "kafka-1:9092", "-X", "client.id=me")
    assert settings_of(At())["bootstrap.servers"] == "kafka-1:9092"
    assert settings_of(At())["client.id"] == "me"
    assert run_command("profile", "use", "test").returncode == 0
    assert settings_of(At())["bootstrap.servers"] == "test-1:9092"
    assert settings_of(At(profile="production"))["bootstrap.servers"] == "kafka-1:9092"
    listed = run_command("profile", "list").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["production", "kafka-1:9092"],
        ["*", "test", "test-1:9092"],
    ]


def test_a_profile_s_password_goes_to_no_cluster_that_the_command_names(tmp_path: Path) -> None:
    create("production", "kafka-1:9092", "-X", "sasl.password=hunter2")
    config = tmp_path / "client.properties"
    config.write_text("client.id=from-the-file\n")
    for at in (
        At(bootstrap="elsewhere:9092"),
        At(settings=["bootstrap.servers=elsewhere:9092"]),
        At(config_file=config),
    ):
        assert "sasl.password" not in settings_of(at)
    with pytest.raises(Failure, match="not both"):
        settings_of(At(bootstrap="elsewhere:9092", profile="production"))


def test_only_the_user_can_read_the_file_and_passwords_are_not_shown(home: Path) -> None:
    create("production", "kafka-1:9092", "-X", "sasl.password=hunter2", "-X", "client.id=me")
    file = home / "headrace" / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for words in (["show"], ["show", "production", "--json"], ["list"]):
        said = run_command("profile", *words)
        assert said.returncode == 0
        assert "hunter2" not in said.stdout + said.stderr
    assert "client.id=me" in run_command("profile", "show").stdout


def test_a_client_config_is_copied_with_java_s_names(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=kafka-1:9092\nsecurity.protocol=SSL\n")
    said = run_command("profile", "create", "p", "--client-config", str(config))
    assert said.returncode == 0, said.stderr
    config.unlink()
    assert settings_of(At())["bootstrap.servers"] == "kafka-1:9092"
    assert str(settings_of(At())["security.protocol"]).lower() == "ssl"


def test_a_deleted_profile_is_used_no_more() -> None:
    create("test", "test-1:9092")
    assert run_command("profile", "delete", "test").returncode == 0
    assert settings_of(At())["bootstrap.servers"] == "localhost:9092"
    gone = run_command("profile", "use", "test")
    assert gone.returncode == 1
    assert "There is no profile test" in gone.stderr


@pytest.mark.parametrize("name", ["", "../../x", "a b", "\x1b[2J", "x" * 65, "-x"])
def test_a_name_that_could_harm_a_terminal_or_a_folder_is_refused(name: str, home: Path) -> None:
    said = run_command("profile", "create", "--bootstrap", "x:9092", "--", name)
    assert said.returncode == 1
    assert "\x1b" not in said.stderr
    assert not (home / "headrace").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"profiles": [], "current": null}', '{"profiles": {"a": 1}}', "\ud800"]
)
def test_a_damaged_file_is_one_sentence_with_its_name(home: Path, text: str) -> None:
    (home / "headrace").mkdir()
    file = home / "headrace" / "profiles.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    said = run_command("profile", "list")
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert str(file) in said.stderr


def test_the_current_profile_of_a_file_may_be_missing(home: Path) -> None:
    (home / "headrace").mkdir()
    saved = {"current": "gone", "profiles": {"a": {"bootstrap": "a:1", "settings": {}}}}
    (home / "headrace" / "profiles.json").write_text(json.dumps(saved))
    assert profiles.load().current is None
    assert settings_of(At())["bootstrap.servers"] == "localhost:9092"


def test_a_console_of_several_clusters_takes_the_others_from_profiles() -> None:
    create("bank", "bank-1:9092", "-X", "client.id=desk")
    create("shop", "shop-1:9092")
    assert At().name() == At(settings=["client.id=me"]).name() == "shop"
    assert At(bootstrap="elsewhere:9092").name() == "elsewhere:9092"
    bank = At().of_profile("bank")
    assert (bank.bootstrap, bank.settings["client.id"]) == ("bank-1:9092", "desk")
    for words, why in (
        (["--also", "shop"], "twice"),
        (["--also", "bank", "--also", "bank"], "twice"),
        (["--also", "office"], "There is no profile office"),
        (["--also", "bank"] * MOST_CLUSTERS, "at most"),
    ):
        said = run_command("console", *words)
        assert said.returncode == 1 and why in said.stderr, said.stderr
