"""What a node is started with."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.edge.host_names import is_loopback
from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.definition import (
    BadValue,
    ConfigType,
    Definition,
    Standing,
)
from headrace.node.process.listeners.addresses import Listener
from headrace.node.process.settings.settings import CannotStart, load_settings

# As Apache Kafka 4.3 ships it, without comments: it must start as it is, but for /tmp.
APACHES_SAMPLE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text)
    return path


def refusal(overrides: dict[str, str], *, insecure: bool = False) -> str:
    with pytest.raises(CannotStart) as refused:
        load_settings(overrides=overrides, insecure=insecure)
    sentence = str(refused.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_without_anything_said() -> None:
    settings = load_settings()
    assert (settings.node_id, settings.log_dir) == (1, "headrace-data")
    assert settings.listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert settings.advertised == {"PLAINTEXT": ("localhost", 9092)}
    assert settings.given == {} and settings.metrics is None
    assert set(settings.values) == set(BROKER_SETTINGS)
    for name, value in (
        ("auto.create.topics.enable", True),
        ("offsets.topic.replication.factor", 1),
        ("transaction.state.log.min.isr", 1),
        ("group.initial.rebalance.delay.ms", 0),
        ("group.consumer.assignment.interval.ms", 0),
        ("socket.request.max.bytes", 104_857_600),
        ("connections.max.idle.ms", 600_000),
        ("fetch.max.bytes", 57_671_680),
        ("log.flush.offset.checkpoint.interval.ms", 60_000),
        ("max.incremental.fetch.session.cache.slots", 1_000),
        ("headrace.durability", "page-cache"),
    ):
        assert settings.values[name] == value, name


def test_apaches_sample_file_starts(tmp_path: Path) -> None:
    settings = load_settings(config_file=write(tmp_path, APACHES_SAMPLE))
    assert settings.log_dir == "/var/lib/kraft-combined-logs"
    assert [listener.name for listener in settings.listeners] == ["PLAINTEXT"]
    assert settings.controller_endpoint == ("CONTROLLER", "localhost", 9093)
    assert settings.given["broker.id"] == "1", "node.id and broker.id stand in for each other"


def test_options_win_over_the_file_and_the_last_line_over_the_first(tmp_path: Path) -> None:
    text = "num.partitions=3\nnum.partitions=4\nlog.dir=/a\nlog.retention.ms=5\n"
    path = write(tmp_path, text)
    settings = load_settings(
        config_file=path,
        overrides=["log.retention.ms=6", "num.io.threads = 2"],
        data=tmp_path / "data",
        listen="127.0.0.1:0",
        metrics="localhost:9100",
    )
    values = settings.values
    assert (values["num.partitions"], values["log.retention.ms"]) == (4, 6)
    assert values["num.io.threads"] == 2
    assert settings.log_dir == str(tmp_path / "data")
    assert settings.listeners == (Listener("PLAINTEXT", "127.0.0.1", 0),)
    assert settings.metrics == ("localhost", 9100)


def test_the_node_is_told_the_ports_that_were_bound() -> None:
    settings = load_settings(
        overrides={
            "listeners": "IN://localhost:0,OUT://localhost:19093",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners": "OUT://kafka.example.org:443",
        }
    )
    node = settings.for_node({"IN": 40_000, "OUT": 19_093})
    assert node.endpoints == {"IN": ("localhost", 40_000), "OUT": ("kafka.example.org", 443)}
    assert (node.node_id, node.folder) == (1, "headrace-data")
    assert node.values is settings.values and node.given is settings.given


# ---- faults are told with the place they are at


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("num.partitions=0", "num.partitions must be at least 1, not '0'."),
        ("num.partitions=many", "num.partitions must be a whole number of 32 bits, not 'many'."),
        ("auto.create.topics.enable=yes", "auto.create.topics.enable must be true or false"),
        ("headrace.durability=maybe", "headrace.durability must be one of page-cache, disk"),
        ("ssl.keystore.password=k", "ssl.keystore.password cannot be honoured"),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    path = write(tmp_path, f"# settings\n\n{line}\n")
    with pytest.raises(CannotStart) as refused:
        load_settings(config_file=path)
    assert str(refused.value).startswith(f"{path}, line 3: {said}")


def test_faults_of_options_name_the_option() -> None:
    assert refusal({"num.partitions": "0"}) == "num.partitions must be at least 1, not '0'."
    for wrong in ("num.partitions", "=5"):
        with pytest.raises(CannotStart, match="--set takes KEY=VALUE"):
            load_settings(overrides=[wrong])
    with pytest.raises(CannotStart, match="^--set: num.partitions must be"):
        load_settings(overrides=["num.partitions=-1"])
    with pytest.raises(CannotStart, match="--listen must be HOST:PORT"):
        load_settings(listen="9092")
    with pytest.raises(CannotStart, match="--metrics must be HOST:PORT"):
        load_settings(metrics="localhost:99999")


def test_a_file_that_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot be read: No such file"):
        load_settings(config_file=tmp_path / "missing")
    with pytest.raises(CannotStart, match="cannot be read: Is a directory"):
        load_settings(config_file=tmp_path)
    with pytest.raises(CannotStart, match="cannot be understood: line 1"):
        load_settings(config_file=write(tmp_path, "a=\\u1"))


# ---- what is not supported is never ignored


def wish_for(definition: Definition) -> str:
    """A value of this setting that is not the default."""
    if definition.type is ConfigType.BOOLEAN:
        return "false" if definition.default else "true"
    if definition.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
        candidates = [str((definition.default or 0) + step) for step in (1, -1)] + ["0.1"]
    else:
        candidates = ["wish", "required", "ES256"]
    for text in candidates:
        with suppress(BadValue):
            definition.parse(text)
            return text
    raise AssertionError(f"no other value for {definition.name}")


def test_no_setting_for_something_unsupported_starts() -> None:
    unsupported = [d for d in BROKER_SETTINGS.values() if d.standing is Standing.UNSUPPORTED]
    assert len(unsupported) > 50
    for definition in unsupported:
        sentence = refusal({definition.name: wish_for(definition)})
        assert f"does not support {definition.why} yet" in sentence, definition.name


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.login.class": "x"}, "classes of Java"),
        ({"authorizer.class.name": "com.example.Mine"}, "StandardAuthorizer, which is built in"),
        ({"super.users": "admin"}, "super.users names principals such as User:alice, not 'admin'"),
        ({"allow.everyone.if.no.acl.found": "yes"}, "must be true or false, not 'yes'"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage"),
        ({"listener.name.plaintext.num.io.threads": "5"}, "num.io.threads of single listeners"),
        ({"config.providers": "file"}, "config providers"),
        ({"process.roles": ""}, "process.roles must be broker, controller"),
        ({"replica.fetch.wait.max.ms": "40000"}, "must not be above replica.socket.timeout.ms"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "does not name node.id=1"),
        ({"log.dirs": "/a,/b,/a/"}, "log.dirs names /a twice"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL is not in listeners"),
        ({"listeners": "OUT://localhost:9092"}, "The listener OUT has no security protocol"),
        (
            {
                "listeners": "OUT://localhost:9092",
                "listener.security.protocol.map": "OUT:MAGIC",
            },
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"broker.id": "2", "node.id": "3"}, "broker.id is 2 while node.id is 3"),
        ({"log.retention.hours": "0"}, "log.retention.hours"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
    ],
)
def test_what_cannot_be_done_is_said(settings: dict[str, str], said: str) -> None:
    assert said in refusal(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer.class.name": ""},
        {"ssl.cipher.suites": ""},
        {"remote.log.storage.system.enable": "false"},
        {"remote.fetch.max.wait.ms": "5"},  # of a feature that cannot be switched on
        {"sasl.kerberos.kinit.cmd": "/usr/bin/kinit"},
        {"transaction.two.phase.commit.enable": "false"},
        {"metric.reporters": ""},
        {"controller.quorum.voters": "1@localhost:9093"},
        {"metadata.log.dir": "headrace-data"},
        {"broker.id": "1"},
    ],
)
def test_asking_for_nothing_is_no_wish(settings: dict[str, str]) -> None:
    assert load_settings(overrides=settings).values


def test_the_older_name_of_the_node_id() -> None:
    settings = load_settings(overrides={"broker.id": "5"})
    assert (settings.node_id, settings.given["node.id"]) == (5, "5")


def test_an_unknown_name_in_a_file_is_warned_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=localhost:2181\ncontrol.plane.listener.name=X\n")
    with caplog.at_level(logging.WARNING):
        load_settings(config_file=file)
    said = [
        one.getMessage()
        for one in caplog.records
        if one.name == "headrace.node.process.settings.settings"
    ]
    assert "zookeeper.connect" in said[0] and "control.plane" in said[1]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("headrace.durabilty", "headrace.durability"),
        ("min.insync.replica", "min.insync.replicas"),
        ("log.flush.interval.message", "log.flush.interval.messages"),
        ("unclean.leader.election.enabled", "unclean.leader.election.enable"),
    ],
)
def test_a_slip_in_a_setting_does_not_pass(name: str, meant: str, tmp_path: Path) -> None:
    """It would protect nothing, and nobody would know."""
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=1\n")
    for refused in ({"overrides": {name: "1"}}, {"config_file": file}):
        with pytest.raises(CannotStart, match=f"no setting named {name}. Did you mean {meant}?"):
            load_settings(**refused)


def test_an_option_has_no_name_that_nobody_knows(tmp_path: Path) -> None:
    for name in ("zookeeper.connect", "headrace.fast"):
        with pytest.raises(CannotStart, match=f"no setting named {name}"):
            load_settings(overrides={name: "1"})
    file = tmp_path / "server.properties"
    file.write_text("headrace.fast=1\n")
    with pytest.raises(CannotStart, match="no setting named headrace.fast"):
        load_settings(config_file=file)


# ---- listeners


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ("localhost:9092", "must be a list of NAME://HOST:PORT"),
        ("PLAINTEXT://localhost", "must be a list of NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:70000", "must be a list of NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:1,plaintext://localhost:2", "two entries named PLAINTEXT"),
        ("CONTROLLER://localhost:9093", "no entry for clients"),
    ],
)
def test_listeners_that_make_no_sense(listeners: str, said: str) -> None:
    assert said in refusal({"listeners": listeners})


def test_advertised_listeners_must_be_listeners() -> None:
    assert "OUT" in refusal({"advertised.listeners": "OUT://example.org:9092"})
    assert "inter.broker.listener.name=X" in refusal({"inter.broker.listener.name": "X"})


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.168.1.5", "example.org", "[::]"])
def test_listening_beyond_this_machine_must_be_wanted(host: str) -> None:
    settings = {"listeners": f"PLAINTEXT://{host}:9092"}
    sentence = refusal(settings)
    assert "--insecure" in sentence and "localhost" in sentence
    allowed = load_settings(overrides=settings, insecure=True)
    (told,) = allowed.advertised.values()
    assert told[0] not in ("", "0.0.0.0", "::"), "nobody can connect to every address"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("kafka.localhost", True),
        ("0.0.0.0", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_which_addresses_are_this_machines_own(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_ipv6_listeners() -> None:
    (listener,) = load_settings(overrides={"listeners": "PLAINTEXT://[::1]:9092"}).listeners
    assert (listener.host, str(listener)) == ("::1", "[::1]:9092")
    (listener,) = load_settings(listen="[::1]:0").listeners
    assert listener == Listener("PLAINTEXT", "::1", 0)


def test_a_folder_named_twice_must_be_the_same(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="name the data folder once"):
        load_settings(data=tmp_path, overrides=["log.dirs=/elsewhere"])
    assert load_settings(data=tmp_path, overrides=[f"log.dirs={tmp_path}"]).log_dir == str(tmp_path)


def test_several_data_folders_of_which_the_first_has_the_metadata() -> None:
    settings = load_settings(overrides={"log.dirs": "/a, /b/"})
    assert (settings.log_dir, settings.log_dirs) == ("/a", ("/a", "/b"))
    apart = load_settings(overrides={"log.dirs": "/a,/b", "metadata.log.dir": "/c/"})
    assert (apart.log_dir, apart.log_dirs) == ("/c", ("/a", "/b"))
