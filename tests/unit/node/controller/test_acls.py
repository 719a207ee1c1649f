"""Access control entries are made, found and deleted as Apache Kafka does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.node.metadata.image import MetadataImage
from headrace.node.metadata.snapshot_records import records_of
from headrace.node.serving.api import ClosesConnection
from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import create_acls, delete_acls, describe_acls
from headrace.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.protocol.messages.describe_acls import DescribeAclsRequest
from tests.unit.node.broker.rig import Rig

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """The tests' principal is ANONYMOUS, and may do everything."""
    return Rig(tmp_path / "data", authorizer_class_name=STANDARD, super_users="User:ANONYMOUS")


def creation(**changes: Any) -> AclCreation:
    wanted = AclCreation(
        TOPIC, "orders", LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    )
    for name, value in changes.items():
        setattr(wanted, name, value)
    return wanted


def create(rig: Rig, *wanted: AclCreation, version: int = 3) -> list[Any]:
    results: list[Any] = rig.ask(
        create_acls, CreateAclsRequest(list(wanted)), version=version
    ).results
    return results


ANY: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def names(rig: Rig, **narrower: Any) -> list[tuple[str, int]]:
    answer = rig.ask(describe_acls, DescribeAclsRequest(**ANY | narrower))
    assert answer.error_code == 0
    return sorted(
        (found.resource_name, acl.operation) for found in answer.resources for acl in found.acls
    )


def delete(rig: Rig, *filters: dict[str, Any], version: int = 3) -> list[Any]:
    request = DeleteAclsRequest([DeleteAclsFilter(**ANY | one) for one in filters])
    results: list[Any] = rig.ask(delete_acls, request, version=version).filter_results
    return results


@pytest.mark.parametrize("version", create_acls.VERSIONS)
def test_entries_come_and_go(rig: Rig, version: int) -> None:
    more = creation(resource_name="ord", resource_pattern_type=PREFIXED)
    codes = [one.error_code for one in create(rig, creation(), more, version=version)]
    assert codes == [0, 0]
    assert names(rig) == [("ord", Operation.READ), ("orders", Operation.READ)]
    [result] = delete(rig, {"resource_name_filter": "orders"}, version=version)
    [gone] = result.matching_acls
    assert (gone.resource_name, gone.principal, gone.host) == ("orders", "User:alice", "*")
    assert names(rig) == [("ord", Operation.READ)]


def test_an_entry_that_is_there_is_not_made_twice(rig: Rig) -> None:
    create(rig, creation(), creation())
    before = rig.node.controller.image.offset
    assert [one.error_code for one in create(rig, creation())] == [0]
    assert len(rig.node.controller.image.acls) == 1
    assert rig.node.controller.image.offset == before, "and nothing was written"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"resource_type": CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_others_are_made(
    rig: Rig, wrong: dict[str, Any], sentence: str
) -> None:
    refused, made = create(rig, creation(**wrong), creation())
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message.startswith(sentence)
    assert made.error_code == 0
    assert names(rig) == [("orders", Operation.READ)]


def test_an_element_that_says_unknown_ends_the_connection(rig: Rig) -> None:
    with pytest.raises(ClosesConnection, match="UNKNOWN"):
        create(rig, creation(operation=0))
    with pytest.raises(ClosesConnection, match="UNKNOWN"):
        delete(rig, {"permission_type": 0})
    with pytest.raises(ClosesConnection, match="UNKNOWN"):
        names(rig, resource_type_filter=0)


def test_filters(rig: Rig) -> None:
    create(
        rig,
        creation(),
        creation(resource_name="ord", resource_pattern_type=PREFIXED),
        creation(resource_name="*", operation=Operation.WRITE),
        creation(resource_name="payments", principal="User:bob", host="10.0.0.1"),
        creation(permission_type=Permission.DENY, operation=Operation.DELETE),
    )
    every = {"pattern_type_filter": PatternType.MATCH, "resource_name_filter": "orders"}
    assert [name for name, _ in names(rig, **every)] == ["*", "ord", "orders", "orders"]
    literal = {"pattern_type_filter": LITERAL, "resource_name_filter": "orders"}
    assert [name for name, _ in names(rig, **literal)] == ["orders", "orders"]
    assert [name for name, _ in names(rig, principal_filter="User:bob")] == ["payments"]
    assert [name for name, _ in names(rig, host_filter="10.0.0.1")] == ["payments"]
    assert names(rig, permission_type=Permission.DENY) == [("orders", Operation.DELETE)]
    assert names(rig, operation=Operation.WRITE) == [("*", Operation.WRITE)]
    assert names(rig, resource_type_filter=ResourceType.GROUP) == []
    first, second, strange, odd = delete(
        rig, every, literal, {"resource_type_filter": 99}, {"operation": 99}
    )
    assert len(first.matching_acls) == 4 and len(second.matching_acls) == 2
    assert strange.error_code == odd.error_code == ErrorCode.INVALID_REQUEST
    assert (strange.error_message, odd.error_message) == (
        "Unknown patternFilter.",
        "Unknown entryFilter.",
    )
    assert [name for name, _ in names(rig)] == ["payments"]


def test_entries_hold_again_after_a_restart_and_a_snapshot_has_them(tmp_path: Path) -> None:
    settings = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
    rig = Rig(tmp_path / "data", **settings)
    create(rig, creation(), creation(resource_name="payments", operation=Operation.WRITE))
    delete(rig, {"resource_name_filter": "orders"})
    image = rig.node.controller.committed_image
    again = MetadataImage(image.cluster_id).apply(
        list(records_of(image)), offset=image.offset, epoch=1, wall_ms=0
    )
    assert again.acls == image.acls and len(again.acls) == 1
    rig.stop()
    rig = Rig(tmp_path / "data", **settings)
    assert names(rig) == [("payments", Operation.WRITE)]
    assert len(rig.node.authorizer) == 1


def test_without_an_authorizer_security_is_disabled(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    [result] = create(rig, creation())
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    [result] = delete(rig, {})
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    answer = rig.ask(describe_acls, DescribeAclsRequest(**ANY))
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert rig.node.controller.image.acls == {}
