"""headrace.client at brokers that ask who it is, Headrace and Apache Kafka: every way to log in,
for librdkafka and for our own codecs alike, and the administration of rights, limits and users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Acl, AclFilter, Admin, Consumer, LoginRefused, Producer, TopicPartition
from headrace.client.connection import connected
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import RecordReader
from tests.interop.brokers import Node
from tests.interop.logins import (
    MECHANISMS,
    ApacheOfAllProtocols,
    Credentials,
    HeadraceOfAllProtocols,
    SecuredNode,
    librdkafka_settings,
    settings,
    signer,
)
from tests.interop.secured import ADMIN, client_settings, secured_node
from tests.patience import until
from tests.sockets.server.a_secured_server import Certificates

KINDS: dict[str, Callable[[Path, dict[str, str]], SecuredNode]] = {
    "headrace": HeadraceOfAllProtocols,
    "apache": ApacheOfAllProtocols,
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=KINDS)
def node(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
) -> Iterator[SecuredNode]:
    """Listeners of every protocol; alice gets her SCRAM passwords by our own Admin."""
    made = KINDS[request.param](tmp_path_factory.mktemp(request.param), settings(certificates))
    with made:
        users = Admin(made.bootstrap).users
        for mechanism in MECHANISMS[1:]:
            users.set_password("alice", "wonder", mechanism=mechanism)
        both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        until(lambda: {user.name: user.mechanisms for user in users.all()} == {"alice": both})
        yield made


def doors(certificates: Certificates) -> dict[str, Credentials]:
    ca, token = str(certificates.ca), signer(certificates).token()
    found = {
        "SSL": Credentials("SSL", ca),
        "MUTUAL": Credentials("MUTUAL", ca, str(certificates.client("ann"))),
    }
    for listener, trusted in (("SASL_PLAINTEXT", ""), ("SASL_SSL", ca)):
        for mechanism in MECHANISMS:
            found[f"{listener} {mechanism}"] = Credentials(listener, trusted).by(mechanism)
        found[f"{listener} token"] = Credentials(
            listener, trusted, mechanism="OAUTHBEARER", token=token
        )
    return found


def test_the_same_settings_open_every_door_for_librdkafka_and_for_our_codecs(
    node: SecuredNode, certificates: Certificates
) -> None:
    for name, shown in doors(certificates).items():
        given = librdkafka_settings(node, shown)
        admin = Admin(settings=given)
        assert admin.cluster.describe().brokers[0].port == node.ports[shown.listener], name
        assert admin.cluster.quorum().leader == admin.cluster.describe().brokers[0].id, name


def test_records_pass_through_a_secured_door(node: SecuredNode, certificates: Certificates) -> None:
    shown = doors(certificates)["SASL_SSL SCRAM-SHA-512"]
    given = librdkafka_settings(node, shown)
    Admin(settings=given).topics.create("passed", partitions=1, replication=1)
    with Producer(settings=given) as producer:
        producer.send("passed", b"through")
    with Consumer(settings=given) as consumer:
        consumer.assign({TopicPartition("passed", 0): 0})
        record = consumer.poll(60)
    assert record is not None
    assert record.value == b"through"


def test_certificates_may_stand_in_the_settings_themselves(
    node: SecuredNode, certificates: Certificates
) -> None:
    mine = certificates.client("bob").read_text()
    given = librdkafka_settings(node, Credentials("MUTUAL")) | {
        "ssl.ca.pem": certificates.ca.read_text(),
        "ssl.certificate.pem": mine,
        "ssl.key.pem": mine,
    }
    assert Admin(settings=given).cluster.quorum().leader >= 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.password": "guess"}, r"Check sasl\.mechanism, sasl\.username and sasl\.password"),
        ({"ssl.ca.location": None}, r"Check ssl\.ca\.location"),
        ({"ssl.ca.location": "/nowhere.pem"}, "cannot be used|setting is wrong"),
    ],
)
def test_a_closed_door_says_what_to_look_at(
    node: SecuredNode, certificates: Certificates, change: dict[str, Any], said: str
) -> None:
    given = librdkafka_settings(node, doors(certificates)["SASL_SSL PLAIN"]) | change
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(ClientError, match=said):
        Admin(settings=given).topics.all()


def test_a_token_that_is_too_old_is_refused_in_words(
    node: SecuredNode, certificates: Certificates
) -> None:
    old = signer(certificates).token(exp=1_000_000_000)
    shown = Credentials("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=old)
    admin = Admin(settings=librdkafka_settings(node, shown))
    with pytest.raises(LoginRefused, match="token|[Aa]uthentication|refuses the login"):
        admin.topics.all()


# ---- rights, limits and users


@pytest.fixture(scope="module", params=["headrace", "apache"])
def ruled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Everybody logs in, and only the administrator may do anything unless told otherwise."""
    folder = tmp_path_factory.mktemp(f"ruled-{request.param}")
    with secured_node(request.param, folder, ["ann"]) as running:
        yield running


@pytest.fixture
def admin(ruled: Node) -> Admin:
    return Admin(ruled.bootstrap, settings=client_settings(ADMIN))


def test_a_right_is_given_used_and_taken_away(ruled: Node, admin: Admin) -> None:
    admin.topics.create("rights", partitions=1, replication=1)
    ann = Admin(ruled.bootstrap, settings=client_settings("ann"))
    entry = Acl("topic", "rights", "literal", "User:ann", "*", "describe", "allow")
    with pytest.raises(ClientError, match="rights"):
        ann.topics.describe(["rights"])
    admin.acls.add([entry])
    until(lambda: admin.acls.find(AclFilter(principal="User:ann")) == [entry])
    until(lambda: "rights" in [topic.name for topic in ann.topics.all()])
    assert admin.acls.remove([AclFilter(resource="rights")]) == [entry]
    until(lambda: admin.acls.find() == [])
    with pytest.raises(ClientError, match="is none of"):
        admin.acls.add([Acl("topics", "rights", "literal", "User:ann", "*", "read", "allow")])
    with pytest.raises(ClientError):
        ann.acls.find()


def test_limits_are_set_seen_and_removed(admin: Admin) -> None:
    admin.quotas.alter({"user": "ann", "client-id": None}, {"producer_byte_rate": 1000.0})

    def limits() -> list[tuple[dict[str, str | None], dict[str, float]]]:
        return [(quota.entity, quota.limits) for quota in admin.quotas.all()]

    wanted = ({"user": "ann", "client-id": None}, {"producer_byte_rate": 1000.0})
    until(lambda: limits() == [wanted])
    with pytest.raises(ClientError):
        admin.quotas.alter({"user": "ann"}, {"apples": 1.0})
    admin.quotas.alter({"user": "ann", "client-id": None}, {"producer_byte_rate": None})
    until(lambda: limits() == [])


def test_users_come_and_go(admin: Admin) -> None:
    admin.users.set_password("carl", "first", mechanism="SCRAM-SHA-256", iterations=8192)
    admin.users.set_password("carl", "second", mechanism="SCRAM-SHA-512")
    both = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
    until(lambda: {user.name: user.mechanisms for user in admin.users.all()} == {"carl": both})
    assert sorted(admin.users.remove("carl")) == sorted(both)
    until(lambda: admin.users.all() == [])
    with pytest.raises(ClientError, match="no user carl"):
        admin.users.remove("carl")
    with pytest.raises(ClientError, match="not a SCRAM mechanism"):
        admin.users.set_password("carl", "x", mechanism="MD5")


def test_what_is_not_allowed_says_what_to_do(ruled: Node, admin: Admin) -> None:
    """Reading, writing, grouping, administering: each refusal names the thing and the remedy."""
    if "shut" not in [topic.name for topic in admin.topics.all()]:
        admin.topics.create("shut", partitions=1, replication=1)
    given = client_settings("ann")
    with (
        Producer(ruled.bootstrap, settings=given) as producer,
        pytest.raises(ClientError, match=r"may not.*shut.*headrace acls add"),
    ):
        producer.send_sync("shut", b"x")
    with Consumer(ruled.bootstrap, settings=given) as consumer:
        consumer.assign({TopicPartition("shut", 0): 0})
        with pytest.raises(ClientError, match=r"may not.*shut.*headrace acls add"):
            while True:
                consumer.poll(2)
    with (
        Consumer(ruled.bootstrap, topics=["shut"], group="shut", settings=given) as consumer,
        pytest.raises(ClientError, match=r"may not.*headrace acls add"),
    ):
        while True:
            consumer.poll(60)
    with pytest.raises(ClientError, match=r"may not.*headrace acls add"):
        Admin(ruled.bootstrap, settings=given).topics.create("other", partitions=1)


def test_who_reads_by_hand_needs_rights_on_the_topic_and_on_no_group(
    ruled: Node, admin: Admin
) -> None:
    admin.topics.create("by-hand", partitions=1, replication=1)
    with Producer(ruled.bootstrap, settings=client_settings(ADMIN)) as producer:
        producer.send_sync("by-hand", b"seen")
    entry = Acl("topic", "by-hand", "literal", "User:ann", "*", "read", "allow")
    admin.acls.add([entry])
    ann = connected(ruled.bootstrap, client_settings("ann"))
    until(lambda: "by-hand" in [topic.name for topic in Admin(ann).topics.all()])
    with Consumer(ann) as consumer:
        consumer.assign({TopicPartition("by-hand", 0): 0})
        record = consumer.poll(60)
        assert record is not None
        assert record.value == b"seen"
        for _ in range(10):
            assert consumer.poll(0.1) is None
    reader = RecordReader(ann, "by-hand")
    assert [record.value for record in reader.records()] == [b"seen"]
    reader.close()
    admin.acls.remove([AclFilter(resource="by-hand")])
