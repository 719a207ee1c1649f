"""Lists of everything: many elements are gone through between other requests, few at once."""

import pytest

from headrace.node.broker.handlers import describe_acls as acls_handler
from headrace.node.broker.handlers import describe_topic_partitions as partitions_handler
from headrace.wire.protocol.messages import create_acls, describe_acls, describe_topic_partitions
from tests.unit.node.broker.guarded_rig import Guarded
from tests.unit.node.broker.rig import Rig


def steps_until_answered(rig, session):
    steps = 0
    while not session.outbox:
        rig.node.work(lambda: True)
        steps += 1
        assert steps < 1_000
    return steps


@pytest.mark.parametrize(("per_step", "in_steps"), [(4, True), (100, False)])
def test_pages_of_partitions(tmp_path, monkeypatch, per_step, in_steps):
    monkeypatch.setattr(partitions_handler, "AT_ONCE", per_step)
    rig = Rig(tmp_path / "data")
    rig.create("wide", 30)
    rig.create("narrow", 1)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        [], response_partition_limit=20
    )
    session = rig.send(describe_topic_partitions, request, version=0)
    taken = steps_until_answered(rig, session)
    assert taken > 5 if in_steps else taken == 0
    narrow, wide = rig.answer_on(session, describe_topic_partitions, 0).topics
    assert [part.partition_index for part in wide.partitions] == list(range(19))
    assert len(narrow.partitions) == 1


@pytest.mark.parametrize(("per_step", "in_steps"), [(4, True), (100, False)])
def test_access_control_entries(tmp_path, monkeypatch, per_step, in_steps):
    monkeypatch.setattr(acls_handler, "ENTRIES_PER_STEP", per_step)
    rig = Guarded(tmp_path / "data")
    entries = [create_acls.AclCreation(2, f"t{n}", 3, "User:a", "*", 3, 3) for n in range(30)]
    rig.ask(create_acls, create_acls.CreateAclsRequest(entries), version=3)
    before = len(rig.node.broker.image.acls)
    request = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    session = rig.send(describe_acls, request, version=3)
    taken = steps_until_answered(rig, session)
    assert taken > 5 if in_steps else taken == 0
    found = rig.answer_on(session, describe_acls, 3).resources
    assert sum(len(one.acls) for one in found) == before >= 30
