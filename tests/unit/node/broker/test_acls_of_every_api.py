"""All that is served is refused to who has no right, and given for exactly the rights it needs.

The table is in `tests/conformance/rights.py`, where Apache Kafka is asked the same.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from headrace.node.broker.broker import Broker
from headrace.node.serving.authorization import allowed_by
from headrace.node.serving.principal import Principal
from headrace.wire.protocol.acls import OPERATIONS_ON, Operation, ResourceType
from headrace.wire.protocol.messages import (
    alter_share_group_offsets,
    create_acls,
    find_coordinator,
    init_producer_id,
    offset_commit,
    update_features,
)
from tests.conformance.rights import (
    CASES,
    GROUP,
    REFUSALS,
    SHARE_GROUP,
    TRANSACTIONAL_ID,
    Case,
    Need,
    Scene,
    codes_in,
    creation,
)
from tests.unit.node.broker.rig import WAITS, Rig

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NOBODY = Principal("User", "nobody")
# Asked before it is known who somebody is, or of how a connection is talked on.
FOR_EVERYBODY = {17: "SaslHandshake", 18: "ApiVersions", 36: "SaslAuthenticate"}
# What nothing that is served needs: two-phase commit (KIP-939), delegation tokens.
NOT_SERVED = {
    (ResourceType.TRANSACTIONAL_ID, Operation.TWO_PHASE_COMMIT),
    (ResourceType.DELEGATION_TOKEN, Operation.DESCRIBE),
    (ResourceType.USER, Operation.CREATE_TOKENS),
    (ResourceType.USER, Operation.DESCRIBE_TOKENS),
}


class Guarded:
    """A node with an authorizer: the tests' own principal may do everything, NOBODY nothing."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(
            folder,
            authorizer_class_name=STANDARD,
            super_users="User:ANONYMOUS",
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            share_coordinator_state_topic_num_partitions=1,
        )
        self.scene = Scene(topic_id=self.rig.create("orders"))
        ask = self.rig.ask
        level = update_features.FeatureUpdateKey("share.version", 1, upgrade_type=1)
        request = update_features.UpdateFeaturesRequest(1_000, [level])
        assert ask(update_features, request, version=1).error_code == 0
        for key, kind in ((GROUP, 0), (TRANSACTIONAL_ID, 1)):
            ask(find_coordinator, find_coordinator.FindCoordinatorRequest(key, kind, [key]))
        ask(init_producer_id, init_producer_id.InitProducerIdRequest(TRANSACTIONAL_ID, 10_000))
        part = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "")
        topic = offset_commit.OffsetCommitRequestTopic("orders", bytes(16), [part])
        commit = offset_commit.OffsetCommitRequest(GROUP, -1, "", None, -1, [topic])
        [answered] = ask(offset_commit, commit, version=9).topics
        assert answered.partitions[0].error_code == 0
        offset = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)
        share = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic("orders", [offset])
        ask(
            alter_share_group_offsets,
            alter_share_group_offsets.AlterShareGroupOffsetsRequest(SHARE_GROUP, [share]),
        )
        self.rig.advance(1_000)  # the topic of the states is made

    def grant(self, *needs: Need) -> None:
        wanted = [creation(need, str(NOBODY)) for need in needs]
        results = self.rig.ask(create_acls, create_acls.CreateAclsRequest(wanted)).results
        assert [one.error_code for one in results] == [0] * len(needs)

    def refused(self, case: Case, version: int) -> tuple[bool, Any]:
        session = self.rig.connect()
        session.principal = NOBODY
        request = case.request(self.scene, version)
        answer = self.rig.ask(case.api, request, version=version, session=session)
        return answer != WAITS and case.refused(answer, self.scene), answer

    def versions(self, case: Case) -> list[int]:
        key = case.api.API_KEY
        served = {route.version for route in self.rig.node.dispatch.routes.values()
                  if route.api_key == key}  # fmt: skip
        return sorted(served & set(case.versions or served))


@pytest.fixture(autouse=True)
def _share_groups_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "share_groups_served", property(lambda broker: True))


def newest(case: Case) -> int:
    return (case.versions or case.api.VERSIONS)[-1]


def test_every_api_that_is_served_has_its_line_in_the_table(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    served = {(r.api_key, r.name) for r in rig.node.dispatch.routes.values()}
    listed = {(case.api.API_KEY, case.api.NAME) for case in CASES} | set(FOR_EVERYBODY.items())
    assert served - listed == set(), "served, and nobody has said which rights it needs"
    covered = {(key, r) for key, r in served if key not in FOR_EVERYBODY}
    of_version = {
        (case.api.API_KEY, version)
        for case in CASES
        for version in (case.versions or case.api.VERSIONS)
    }
    missing = {
        (route.name, route.version)
        for route in rig.node.dispatch.routes.values()
        if route.api_key not in FOR_EVERYBODY and (route.api_key, route.version) not in of_version
    }
    assert covered and missing == set()


def test_every_operation_on_every_type_of_resource_is_needed_somewhere() -> None:
    needed = {(kind, operation) for case in CASES for kind, _, operation in case.needs}
    known = {(kind, one) for kind, operations in OPERATIONS_ON.items() for one in operations}
    assert known - needed == NOT_SERVED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_has_nothing_gets_nothing_and_who_has_all_that_is_needed_is_served(
    case: Case, tmp_path: Path
) -> None:
    guarded = Guarded(tmp_path / "data")
    for version in guarded.versions(case):
        refused, answer = guarded.refused(case, version)
        assert refused, f"version {version} answered {answer}"
    guarded.grant(*case.needs)
    refused, answer = guarded.refused(case, guarded.versions(case)[-1])
    assert not refused, answer
    if case.hidden is None and answer != WAITS:
        assert not REFUSALS & set(codes_in(answer))


SEVERAL = [case for case in CASES if len(case.needs) > 1]


@pytest.mark.parametrize("case", SEVERAL, ids=lambda case: case.name)
def test_all_but_one_of_the_rights_are_not_enough(case: Case, tmp_path: Path) -> None:
    for number, some in enumerate(combinations(case.needs, len(case.needs) - 1)):
        guarded = Guarded(tmp_path / str(number))
        guarded.grant(*some)
        refused, answer = guarded.refused(case, guarded.versions(case)[-1])
        assert refused, (some, answer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_may_do_everything_else_with_a_resource_is_refused(case: Case, tmp_path: Path) -> None:
    """The right that is asked for is the one that is meant, not one that is like it."""
    for number, (kind, name, operation) in enumerate(case.needs):
        instead = {
            other.needs[0][2]
            for other in CASES
            if other.api is case.api
            and len(other.needs) == 1
            and other.needs[0][:2] == (kind, name)
        }
        everything_else = [
            (kind, name, one)
            for one in OPERATIONS_ON[kind]
            if one not in instead and not allowed_by(one) >> operation & 1
        ]
        guarded = Guarded(tmp_path / str(number))
        guarded.grant(*case.needs[:number], *case.needs[number + 1 :], *everything_else)
        refused, answer = guarded.refused(case, guarded.versions(case)[-1])
        assert refused, (everything_else, answer)
