"""The same requests with the same rights at Apache Kafka's StandardAuthorizer and at Headrace.

Each line of the table has a user of its own. It asks with no right at all, then gets the rights
that the line names one by one and asks again each time: the error codes agree at every step. Then
Apache's kafka-acls and the files that both write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_acls,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_user_scram_credentials,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
)
from headrace.wire.protocol.primitives import Message
from tests.conformance.rights import (
    CASES,
    GROUP,
    NEW_TOPIC,
    TRANSACTIONAL_ID,
    Case,
    Need,
    Scene,
    codes_in,
    creation,
)
from tests.conformance.wire import Connection, ConnectionClosed, NoAnswer
from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.java_session import JavaSession
from tests.interop.secured import ADMIN, STANDARD, java_client_file, log_in, secured_node
from tests.patience import until

USERS = [f"user{number}" for number in range(len(CASES))]
SETTINGS = {"node.id": "1", "group.consumer.assignment.interval.ms": "0"}
OPENED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


class Guarded:
    """A broker with an administrator who has made what the cases are about."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.admin = log_in(node, ADMIN)
        self.scene = Scene()
        self.restore()
        request = init_producer_id.InitProducerIdRequest(TRANSACTIONAL_ID, 60_000)
        until(lambda: self._coordinator_is_there(TRANSACTIONAL_ID, 1))
        until(lambda: self.ask(init_producer_id, 5, request).error_code == 0)

    def ask(self, api: Any, version: int, request: Message) -> Any:
        return self.admin.ask(api, version, request)

    def restore(self) -> None:
        """What a case may have deleted or made is as it was."""
        leaving = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            GROUP, "member-0123456789abcdef", -1
        )
        self.ask(consumer_group_heartbeat, 1, leaving)
        self.ask(delete_groups, 2, delete_groups.DeleteGroupsRequest([GROUP]))
        gone = [delete_topics.DeleteTopicState(NEW_TOPIC)]
        self.ask(delete_topics, 6, delete_topics.DeleteTopicsRequest(gone, [], 30_000))
        until(lambda: self._topic(NEW_TOPIC).error_code != 0)
        wanted = create_topics.CreatableTopic("orders", 1, 1)
        request = create_topics.CreateTopicsRequest([wanted], 30_000)
        [made] = self.ask(create_topics, 7, request).topics
        if made.error_code == 0:  # and is not there already
            self.scene.topic_id = made.topic_id
        # Metadata may still know one that was deleted: it has another id.
        until(lambda: self._topic("orders").topic_id == self.scene.topic_id)
        until(lambda: self._coordinator_is_there(GROUP, 0))
        part = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "")
        topic = offset_commit.OffsetCommitRequestTopic("orders", bytes(16), [part])
        commit = offset_commit.OffsetCommitRequest(GROUP, -1, "", None, -1, [topic])
        until(lambda: self.ask(offset_commit, 9, commit).topics[0].partitions[0].error_code == 0)

    def _topic(self, name: str) -> Any:
        wanted = [metadata.MetadataRequestTopic(name=name)]
        [found] = self.ask(metadata, 12, metadata.MetadataRequest(wanted, False)).topics
        return found

    def _coordinator_is_there(self, key: str, kind: int) -> bool:
        request = find_coordinator.FindCoordinatorRequest(key, kind, [key])
        [found] = self.ask(find_coordinator, 6, request).coordinators
        return bool(found.error_code == 0)

    def grant(self, user: str, *needs: Need) -> None:
        """Holds when it returns: the broker itself says so."""
        wanted = [creation(need, f"User:{user}") for need in needs]
        results = self.ask(create_acls, 3, create_acls.CreateAclsRequest(wanted)).results
        assert [one.error_code for one in results] == [0] * len(needs)
        asked = describe_acls.DescribeAclsRequest(
            ResourceType.ANY, None, PatternType.ANY, f"User:{user}", None,
            Operation.ANY, Permission.ANY,
        )  # fmt: skip

        def known() -> set[Need]:
            return {
                (found.resource_type, found.resource_name, entry.operation)
                for found in self.ask(describe_acls, 3, asked).resources
                for entry in found.acls
            }

        until(lambda: set(needs) <= known())

    def story(self, case: Case, user: str, versions: list[int]) -> dict[str, Any]:
        """What the user was answered, step by step."""
        told: dict[str, Any] = {}
        for version in versions:
            told[f"v{version} with nothing"] = self.told(case, user, version)
        for number, need in enumerate(case.needs[:-1]):
            self.grant(user, need)
            told[f"with {number + 1} of the rights"] = self.told(case, user, versions[-1])
        self.grant(user, *case.needs)
        refused, _ = self.told(case, user, versions[-1])
        told["with all"] = refused
        self.restore()
        return told

    def told(self, case: Case, user: str, version: int) -> tuple[bool, list[int]]:
        connection = log_in(self.node, user)
        try:
            answer = connection.ask(case.api, version, case.request(self.scene, version))
        finally:
            connection.close()
        return case.refused(answer, self.scene), sorted(set(codes_in(answer)))


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("oracle")
    with secured_node("apache", folder, USERS, **SETTINGS) as node:
        yield Guarded(node)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("ours")
    with secured_node(TARGET, folder, USERS, **SETTINGS) as node:
        yield Guarded(node)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_both_refuse_alike(number: int, apache: Guarded, ours: Guarded) -> None:
    case, user = CASES[number], USERS[number]
    versions = [v for v in (case.versions or case.api.VERSIONS) if v in served(case)]
    theirs = apache.story(case, user, versions)
    mine = ours.story(case, user, versions)
    assert mine == theirs
    assert all(refused for step, (refused, _) in list(mine.items())[:-1]), mine
    assert mine["with all"] is False


def served(case: Case) -> range:
    """Versions that Headrace has; Apache Kafka has them all."""
    from headrace.node.broker.handlers import HANDLERS as BROKER
    from headrace.node.controller.handlers import HANDLERS as CONTROLLER

    [api] = [api for api in (*BROKER, *CONTROLLER) if api.messages is case.api]
    return api.versions


# --- entries themselves


OF_FILTERS = ", which only filters have"


def creations() -> list[tuple[str, Any]]:
    """Entries that are refused, each for one reason."""
    good = (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:x", "*", Operation.READ,
            Permission.ALLOW)  # fmt: skip

    def other(**changes: Any) -> Any:
        wanted = create_acls.AclCreation(*good)
        for name, value in changes.items():
            setattr(wanted, name, value)
        return wanted

    return [
        ("good", other()),
        ("the same again", other()),
        ("no name", other(resource_name="")),
        ("another cluster", other(resource_type=ResourceType.CLUSTER)),
        (f"any resource{OF_FILTERS}", other(resource_type=ResourceType.ANY)),
        ("strange resource", other(resource_type=99)),
        (f"pattern match{OF_FILTERS}", other(resource_pattern_type=PatternType.MATCH)),
        (f"pattern any{OF_FILTERS}", other(resource_pattern_type=PatternType.ANY)),
        (f"any operation{OF_FILTERS}", other(operation=Operation.ANY)),
        ("strange operation", other(operation=99)),
        (f"any permission{OF_FILTERS}", other(permission_type=Permission.ANY)),
        ("no type of principal", other(principal="x")),
        ("an operation that topics do not have", other(operation=Operation.CLUSTER_ACTION)),
        ("a host that is none", other(host="not an address")),
        ("a user", other(resource_type=ResourceType.USER, operation=Operation.CREATE_TOKENS)),
    ]


@pytest.mark.parametrize("version", create_acls.VERSIONS)
def test_entries_are_judged_alike(version: int, apache: Guarded, ours: Guarded) -> None:
    told = [
        {
            name: (result.error_code, result.error_message)
            for name, wanted in creations()
            for result in guarded.ask(
                create_acls, version, create_acls.CreateAclsRequest([wanted])
            ).results
        }
        for guarded in (apache, ours)
    ]
    theirs, mine = told
    for name in [name for name in theirs if name.endswith(OF_FILTERS)]:
        # An exception that Apache Kafka does not catch: UNKNOWN_SERVER_ERROR for the whole request.
        assert theirs.pop(name)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
        assert mine.pop(name)[0] in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert theirs == mine


@pytest.mark.parametrize("where", ["resource_type", "operation", "permission_type"])
def test_the_element_unknown_ends_the_connection_at_both(
    where: str, apache: Guarded, ours: Guarded
) -> None:
    for guarded in (apache, ours):
        name, wanted = creations()[0]
        setattr(wanted, where, 0)
        connection = log_in(guarded.node, ADMIN)
        with pytest.raises(ConnectionClosed):
            connection.ask(create_acls, 3, create_acls.CreateAclsRequest([wanted]))
        connection.close()


def test_filters_find_and_delete_alike(apache: Guarded, ours: Guarded) -> None:
    entries = [
        ("filter-a", PatternType.LITERAL, Operation.READ, Permission.ALLOW, "*"),
        ("filter-", PatternType.PREFIXED, Operation.WRITE, Permission.ALLOW, "*"),
        ("*", PatternType.LITERAL, Operation.DELETE, Permission.DENY, "10.0.0.1"),
        ("filter-b", PatternType.LITERAL, Operation.ALL, Permission.ALLOW, "*"),
    ]
    nothing = (None, PatternType.ANY, "User:filtered", None, Operation.ANY, Permission.ANY)
    filters = {
        "all": nothing,
        "literal": (None, PatternType.LITERAL, *nothing[2:]),
        "match a": ("filter-a", PatternType.MATCH, *nothing[2:]),
        "any a": ("filter-a", PatternType.ANY, *nothing[2:]),
        "prefix named a": ("filter-a", PatternType.PREFIXED, *nothing[2:]),
        "denied": (None, PatternType.ANY, "User:filtered", None, Operation.ANY, Permission.DENY),
        "by host": (None, PatternType.ANY, "User:filtered", "10.0.0.1", *nothing[4:]),
        "strange type": (None, 99, *nothing[2:]),
        "strange operation": (None, PatternType.ANY, "User:filtered", None, 99, Permission.ANY),
    }

    def found_by(guarded: Guarded) -> dict[str, Any]:
        wanted = [
            create_acls.AclCreation(
                ResourceType.TOPIC, name, pattern, "User:filtered", host, operation, permission
            )
            for name, pattern, operation, permission, host in entries
        ]
        guarded.ask(create_acls, 3, create_acls.CreateAclsRequest(wanted))
        everything = describe_acls.DescribeAclsRequest(ResourceType.ANY, *nothing)
        until(
            lambda: (
                sum(len(r.acls) for r in guarded.ask(describe_acls, 3, everything).resources)
                == len(entries)
            )
        )
        told: dict[str, Any] = {}
        for name, parts in filters.items():
            asked = describe_acls.DescribeAclsRequest(ResourceType.TOPIC, *parts)
            answer = guarded.ask(describe_acls, 3, asked)
            told[name] = (
                answer.error_code,
                sorted((r.resource_name, r.pattern_type, len(r.acls)) for r in answer.resources),
            )
        for name, parts in filters.items():
            if name != "all":
                doomed = delete_acls.DeleteAclsFilter(ResourceType.TOPIC, *parts)
                answer = guarded.ask(delete_acls, 3, delete_acls.DeleteAclsRequest([doomed]))
                [result] = answer.filter_results
                names = sorted(one.resource_name for one in result.matching_acls)
                told[f"delete {name}"] = result.error_code, result.error_message, names
        return told

    assert found_by(ours) == found_by(apache)


# --- Apache's tools and files


def test_kafka_acls_administers_a_node(java: JavaSession, tmp_path: Path) -> None:
    with secured_node(TARGET, tmp_path, ["alice"], **SETTINGS) as node:
        config = str(java_client_file(tmp_path, ADMIN))

        def acls(*arguments: str, code: int = 0) -> str:
            where = ("--bootstrap-server", node.bootstrap, "--command-config", config)
            return java.run(ACL_COMMAND, *where, *arguments, code=code)

        alice = ("--allow-principal", "User:alice")
        acls("--add", *alice, "--producer", "--topic", "orders", "--transactional-id", "shop")
        acls("--add", *alice, "--consumer", "--topic", "ord", "--group", "mailers",
             "--resource-pattern-type", "prefixed")  # fmt: skip
        acls("--add", "--deny-principal", "User:eve", "--operation", "All", "--cluster")
        listed = acls("--list")
        for expected in (
            "name=orders, patternType=LITERAL",
            "name=ord, patternType=PREFIXED",
            "name=mailers, patternType=PREFIXED",
            "resourceType=TRANSACTIONAL_ID, name=shop",
            "(principal=User:eve, host=*, operation=ALL, permissionType=DENY)",
            "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
        ):
            assert expected in listed
        matched = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "name=ord," in matched and "mailers" not in matched
        acls("--remove", "--topic", "orders", "--force")
        assert "name=orders" not in acls("--list")
        eve = str(java_client_file(tmp_path, "alice"))
        where = ("--bootstrap-server", node.bootstrap, "--command-config", eve)
        answer = java.ask(ACL_COMMAND, *where, "--list")
        said = f"{answer['out']}{answer['err']}"
        assert "ClusterAuthorizationException" in said, "alice may not see who may do what"


ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def test_entries_are_handed_on_between_apache_and_headrace(
    java: JavaSession, tmp_path: Path
) -> None:
    """Each finds what the other has written, in the log and in a snapshot."""
    before: Node | None = None
    expected: set[str] = set()
    for step, kind in enumerate(("apache", "headrace", "apache", "headrace")):
        node = make_node(kind if TARGET == "headrace" else TARGET, tmp_path / str(step), OPENED)
        if before is not None:
            node.take_over(before)
        with node:

            def acls(*arguments: str) -> str:
                return java.run(ACL_COMMAND, "--bootstrap-server", node.bootstrap, *arguments)  # noqa: B023

            listed = acls("--list")
            assert all(f"name={name}," in listed for name in expected), listed
            if len(expected) == 2:
                acls("--remove", "--topic", "by-apache-0", "--force")
                expected.discard("by-apache-0")
                until(lambda: "by-apache-0" not in acls("--list"))
            name = f"by-{kind}-{step}"
            acls("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", name)
            expected.add(name)
            node.stop()
        before = node


def test_apaches_dump_reads_the_entries_that_headrace_has_written(
    java: JavaSession, tmp_path: Path
) -> None:
    with make_node("headrace", tmp_path, OPENED) as node:
        java.run(ACL_COMMAND, "--bootstrap-server", node.bootstrap, "--add", "--allow-principal",
                 "User:alice", "--operation", "Write", "--topic", "dumped",
                 "--resource-pattern-type", "prefixed")  # fmt: skip
        java.run(ACL_COMMAND, "--bootstrap-server", node.bootstrap, "--remove", "--force",
                 "--topic", "dumped", "--resource-pattern-type", "prefixed")  # fmt: skip
        node.stop()
        log = node.data / "__cluster_metadata-0" / "00000000000000000000.log"
        dumped = java.run(DUMP, "--cluster-metadata-decoder", "--files",
                          str(log))  # fmt: skip
    assert '"type":"ACCESS_CONTROL_ENTRY_RECORD"' in dumped
    assert '"resourceName":"dumped","patternType":4,"principal":"User:alice"' in dumped
    assert '"type":"REMOVE_ACCESS_CONTROL_ENTRY_RECORD"' in dumped


def test_who_may_not_see_users_is_told_so_also_if_it_asks_for_all(
    apache: Guarded, ours: Guarded
) -> None:
    """Apache Kafka loses the request in a null pointer and never answers; a list it refuses."""
    everybody = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None)
    connection = log_in(ours.node, USERS[0])
    answer: Any = connection.ask(describe_user_scram_credentials, 0, everybody)
    connection.close()
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.results == []
    connection = log_in(apache.node, USERS[0])
    connection.socket.settimeout(3)
    with pytest.raises((NoAnswer, ConnectionClosed)):
        connection.ask(describe_user_scram_credentials, 0, everybody)
    connection.close()
    seen = [one.ask(describe_user_scram_credentials, 0, everybody) for one in (apache, ours)]
    assert seen[0].error_code == seen[1].error_code == 0, "who may see them gets them"


def test_without_an_authorizer_both_say_so(tmp_path: Path) -> None:
    told = []
    for kind in ("apache", TARGET):
        with make_node(kind, tmp_path / kind) as node:
            connection = Connection(node.port)
            _, wanted = creations()[0]
            made: Any = connection.ask(create_acls, 3, create_acls.CreateAclsRequest([wanted]))
            asked = describe_acls.DescribeAclsRequest(
                ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
            )
            found: Any = connection.ask(describe_acls, 3, asked)
            connection.close()
            told.append((made.results[0].error_code, made.results[0].error_message,
                         found.error_code, found.error_message))  # fmt: skip
    assert told[0] == told[1]
    assert told[0][0] == ErrorCode.SECURITY_DISABLED
