"""Admin changes stand in the log and in the topic `headrace.audit`, by name and without values."""

import json
import logging

import pytest

from headrace.node.broker import audit
from headrace.node.broker.audit import AUDIT_TOPIC, AUDITED, is_audited
from headrace.node.broker.handlers import HANDLERS as BROKER_HANDLERS
from headrace.node.controller.handlers import HANDLERS as CONTROLLER_HANDLERS
from headrace.node.serving.audit_lines import logins_to
from headrace.node.serving.authentication.login import Login
from headrace.node.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.node.serving.authentication.plain import Plain
from headrace.node.serving.principal import Principal
from headrace.wire.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    offset_delete,
    sasl_authenticate,
    sasl_handshake,
    update_features,
    write_txn_markers,
)
from tests.unit.node.broker.rig import Rig, values_in

SECRET = "hunter2-do-not-log"


@pytest.fixture
def lines(caplog):
    """What the logger has got, as objects."""
    caplog.set_level(logging.INFO, logger="headrace.audit")
    return lambda: [
        json.loads(record.message) for record in caplog.records if record.name == "headrace.audit"
    ]


def test_a_change_stands_in_the_log(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="log")
    rig.create("orders")
    request = create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic(name, 1, 1) for name in ("orders", "new")], 1000
    )
    rig.ask(create_topics, request)
    rig.advance(100)
    first, second = lines()
    assert first["event"] == "change" and first["api"] == "CreateTopics"
    assert first["principal"] == "User:ANONYMOUS" and first["host"] == "127.0.0.1"
    assert first["done"] == ["orders"] and "refused" not in first
    assert second["done"] == ["new"]
    assert second["refused"] == {"TOPIC_ALREADY_EXISTS": ["orders"]}


def test_reading_and_writing_records_is_no_admin_change(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="log")
    rig.create("orders")
    rig.advance(100)
    rig.produce("orders", "a")
    rig.fetch("orders")
    rig.advance(100)
    assert len(lines()) == 1


def test_the_topic_is_made_when_there_is_something_to_say(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="topic")
    rig.advance(1_000)
    assert AUDIT_TOPIC not in rig.node.broker.topics.by_name
    rig.create("orders")
    rig.advance(100)
    rig.advance(100)
    found = [json.loads(value) for value in values_in(rig.fetch(AUDIT_TOPIC).records)]
    assert found == lines()
    assert [line["done"] for line in found] == [["orders"]]
    rig.create("more")
    rig.advance(100)
    assert rig.fetch(AUDIT_TOPIC).high_watermark == 2


def test_the_last_lines_are_written_when_the_node_stops(tmp_path):
    rig = Rig(tmp_path / "data", headrace_audit="topic")
    rig.create("orders")
    rig.advance(100)
    rig.advance(100)
    rig.create("last")
    rig.stop()
    again = Rig(rig.folder)
    assert again.fetch(AUDIT_TOPIC).high_watermark == 2


def test_a_topic_that_cannot_be_written_costs_no_memory_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MOST_WAITING_FOR_THE_TOPIC", 10)
    rig = Rig(tmp_path / "data", headrace_audit="topic")
    rig.create("orders")
    rig.advance(100)
    rig.advance(100)
    leader = rig.node.broker.topics.by_name[AUDIT_TOPIC].replicas[0]
    leader.log.settings.max_message_bytes = 1
    for number in range(30):
        rig.create(f"topic-{number}")
        rig.advance(100)
    assert rig.node.audit.dropped == 20


def test_switched_off_nothing_is_said(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="off")
    rig.create("orders")
    rig.advance(100)
    assert lines() == []


def test_settings_are_noted_by_name_and_never_by_value(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="log")
    changed = [
        incremental_alter_configs.AlterableConfig(name, 0, SECRET)
        for name in ("listener.name.x.plain.sasl.jaas.config", "ssl.key.password", "my.token")
    ]
    resource = incremental_alter_configs.AlterConfigsResource(4, "1", changed)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
    rig.ask(incremental_alter_configs, request)
    rig.advance(100)
    [line] = lines()
    assert "my.token" in json.dumps(line) and SECRET not in json.dumps(line)


def test_every_admin_request_is_noted(tmp_path, lines):
    """Each of them once, so that no line of the table fails on a real answer."""
    rig = Rig(tmp_path / "data", headrace_audit="log")
    rig.create("orders")
    entity = alter_client_quotas.RequestEntryData(
        [alter_client_quotas.EntityData("user", None)],
        [alter_client_quotas.OpData("producer_byte_rate", 5.0, False)],
    )
    reassigned = alter_partition_reassignments.ReassignableTopic(
        "orders",
        [
            alter_partition_reassignments.ReassignablePartition(0, [1]),
            alter_partition_reassignments.ReassignablePartition(0, None),
        ],
    )
    moved = alter_replica_log_dirs.AlterReplicaLogDirTopic("orders", [0])
    folder = alter_replica_log_dirs.AlterReplicaLogDir("/nowhere", [moved])
    requests = [
        (delete_records, delete_records.DeleteRecordsRequest([], 100)),
        (
            create_partitions,
            create_partitions.CreatePartitionsRequest(
                [create_partitions.CreatePartitionsTopic("orders", 2, None)], 100, False
            ),
        ),
        (delete_groups, delete_groups.DeleteGroupsRequest(["g"])),
        (offset_delete, offset_delete.OffsetDeleteRequest("g", [])),
        (alter_client_quotas, alter_client_quotas.AlterClientQuotasRequest([entity], False)),
        (update_features, update_features.UpdateFeaturesRequest(100, [], False)),
        (write_txn_markers, write_txn_markers.WriteTxnMarkersRequest([])),
        (
            elect_leaders,
            elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("orders", [0, 9])]),
        ),
        (
            alter_partition_reassignments,
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[reassigned]),
        ),
        (alter_replica_log_dirs, alter_replica_log_dirs.AlterReplicaLogDirsRequest([folder])),
        (
            delete_topics,
            delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("orders")], [], 100),
        ),
    ]
    for messages, request in requests:
        rig.ask(messages, request, version=min(messages.VERSIONS[-1], served(messages)))
    rig.advance(100)
    noted = {line["api"] for line in lines()}
    assert {messages.NAME for messages, _ in requests} <= noted


def served(messages):
    [api] = [api for api in (*BROKER_HANDLERS, *CONTROLLER_HANDLERS) if api.messages is messages]
    return api.versions[-1]


def test_the_table_names_no_api_that_reads_or_writes_records():
    assert not AUDITED.keys() & {0, 1, 2, 3, 8, 9, 11, 12, 22, 28}


def test_a_denied_request_is_noted_with_what_was_missing(tmp_path, lines):
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    rig = Rig(tmp_path / "data", authorizer_class_name=standard, super_users="User:ANONYMOUS")
    rig.create("orders")
    session = rig.connect()
    session.principal = Principal("User", "ann")
    for _ in range(3):
        assert rig.produce("orders", "x", session=session).error_code != 0
    rig.advance(100)
    [line] = [line for line in lines() if line["event"] == "denied"]
    assert (line["principal"], line["operation"]) == ("User:ann", "WRITE")
    assert line["resource"] == "topic orders" and line["times"] == 3


def test_a_failed_login_is_noted_and_a_good_one_is_not(tmp_path, lines):
    rig = Rig(tmp_path / "data", headrace_audit="log")
    logins = Logins()
    logins.watchers.append(logins_to(rig.node.auditor))
    for password in ("wrong-one", "right-one"):
        session = rig.connect()
        begin = {"PLAIN": lambda: Plain({"ann": "right-one"})}
        session.login = Login(Mechanisms(begin, logins))
        rig.ask(sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN"), session=session)
        token = b"\0ann\0" + password.encode()
        request = sasl_authenticate.SaslAuthenticateRequest(token)
        rig.ask(sasl_authenticate, request, session=session)
        rig.advance(200)
    [line] = lines()
    assert line["event"] == "login-failed" and line["mechanism"] == "PLAIN"
    assert line["host"] == "127.0.0.1" and "wrong-one" not in json.dumps(line)


def test_a_node_that_asks_nobody_says_nothing(tmp_path, lines):
    rig = Rig(tmp_path / "data")
    rig.create("orders")
    rig.advance(100)
    assert lines() == []


def test_a_node_that_asks_who_is_there_is_audited():
    values = {"headrace.audit": "auto", "authorizer.class.name": ""}
    assert not is_audited(values, {"PLAINTEXT": 0})
    assert is_audited(values, {"PLAINTEXT": 0, "OUTSIDE": 3})
    assert is_audited(values | {"authorizer.class.name": "x"}, {"PLAINTEXT": 0})
    assert not is_audited(values | {"headrace.audit": "off"}, {"OUTSIDE": 3})
