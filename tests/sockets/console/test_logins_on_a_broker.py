"""Logging in with the cluster's own users, over TLS: whoever is there acts and sees by their own
rights, the console's own user only samples, and every change has a name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.admin.acls import Acl, AclFilter
from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import ClientSettings
from headrace.client.producer.producer import Producer
from headrace.console.main import CannotServe, Settings, Site
from tests.console.pages import PAGES
from tests.console.served import Served, Visitor
from tests.sockets.fills import FILLS
from tests.sockets.server.a_secured_server import Certificates, SecuredServer

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD = "right-p1anted-5ecret"
USERS = ("admin", "ann", "bob", "sampler")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def plain_settings() -> dict[str, str]:
    """Of a node on which everybody logs in by SASL PLAIN, and needs rights."""
    known = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {known};",
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin",
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("node")
    with SecuredServer(folder, "SASL_PLAINTEXT", **plain_settings()) as running:
        fill(running)
        yield running


def at(node: SecuredServer, user: str) -> ClientSettings:
    return ClientSettings(
        {
            "bootstrap.servers": f"127.0.0.1:{node.port('SASL_PLAINTEXT')}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        },
        quiet=True,
    )


def fill(node: SecuredServer) -> None:
    admin = Admin(at(node, "admin"))
    for name in ("orders", "secret-plans"):
        admin.topics.create(name, partitions=1)
    with Producer(at(node, "admin"), settings=FILLS) as producer:
        for topic in ("orders", "secret-plans"):
            producer.send(topic, "what it holds", key="k").result(60)
    groups = Groups(at(node, "admin"))
    for group, topic in (("billing", "orders"), ("spies", "secret-plans")):
        groups.move(group, [Move(topic, 0, None, 0, 0)])
    rights = [
        ("topic", "orders", "User:ann", "read"),
        ("topic", "orders", "User:ann", "describe"),
        ("topic", "orders", "User:ann", "describe_configs"),
        ("topic", "orders", "User:ann", "write"),
        ("group", "billing", "User:ann", "read"),
        ("group", "*", "User:sampler", "describe"),
        ("topic", "*", "User:sampler", "describe"),
    ]
    admin.acls.add(
        [Acl(kind, name, "literal", who, "*", what, "allow") for kind, name, who, what in rights]
    )


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def console(node: SecuredServer, certificates: Certificates, state: Path) -> Iterator[Served]:
    more = {"login": True, "tls": (certificates.server, None), "state": state}
    with Served(at(node, "sampler"), **more) as served:
        yield served


@pytest.fixture
def visitor(console: Served, certificates: Certificates) -> Visitor:
    return console.visitor(certificates.ca)


def test_before_the_login_there_is_nothing_to_see(visitor: Visitor) -> None:
    for path in PAGES:
        answer = visitor.get(path)
        assert answer.status == 303 and answer.headers["Location"].startswith("/login"), path
        assert "orders" not in answer.text.replace("/login?to=", "")
    assert visitor.get("/live/rates", Accept="text/event-stream").status == 401
    form = visitor.get("/login")
    assert "Topics" not in form.said() and "Log in" in form.said()
    refused = visitor.post("/create-topic", {"name": "x"}, token=form.token())
    assert refused.status == 401
    assert visitor.get("/health").status == 200


def test_the_cookie_is_for_this_console_alone_and_changes_with_the_login(visitor: Visitor) -> None:
    cookie = visitor.get("/login").headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "Secure", "SameSite=Strict"))
    before = dict(visitor.cookies)
    assert "Overview" in visitor.log_in("ann", PASSWORD).said()
    assert visitor.cookies != before
    planted = dict(visitor.cookies)
    visitor.cookies = before  # one that somebody may have planted is worth nothing
    assert visitor.get("/topics").status == 303
    visitor.cookies = planted
    assert visitor.get("/topics").status == 200
    visitor.post("/logout", {}, token=visitor.get("/topics").token())
    visitor.cookies = planted
    assert visitor.get("/topics").status == 303, "a session that was ended is over"


@pytest.mark.integration
def test_a_person_sees_and_does_what_their_rights_allow(console: Served, visitor: Visitor) -> None:
    visitor.log_in("ann", PASSWORD)
    topics = visitor.get("/topics").said()
    assert "orders" in topics and "secret-plans" not in topics
    groups = visitor.get("/groups").said()
    assert "billing" in groups and "spies" not in groups
    overview = visitor.get("/").said()
    assert "billing" in overview and "spies" not in overview
    assert "what it holds" in visitor.get("/topics/orders/messages").said()
    assert visitor.get("/topics/secret-plans/messages").status in (403, 404, 502)
    assert "what it holds" not in visitor.get("/topics/secret-plans/messages").said()
    assert visitor.get("/life?topic=secret-plans&partition=0&offset=0").status in (404, 502)
    sent = visitor.post("/topics/orders/send", {"key": "a", "value": "by ann"})
    assert "Sent to partition 0" in sent.said()
    refused = visitor.post("/topics/orders/delete", {"typed": "orders"})
    assert refused.status == 502 and "orders" in visitor.get("/topics").said()


def test_rights_are_changed_by_those_who_may_and_by_nobody_else(
    node: SecuredServer, console: Served, certificates: Certificates
) -> None:
    ann, admin = (console.visitor(certificates.ca) for _ in range(2))
    ann.log_in("ann", PASSWORD)
    admin.log_in("admin", PASSWORD)
    before = Admin(at(node, "admin")).acls.find()
    right = {"principal": "ann", "access": "all", "resource_type": "topic", "resource": "*"}
    for path, fields in (
        ("/security/acls", right),
        ("/security/users", {"user": "ann", "password": "long enough"}),
        ("/security/quotas", {"user": "ann", "limit": "producer_byte_rate", "amount": "9"}),
    ):
        assert ann.post(path, fields).status == 502, path
    assert Admin(at(node, "admin")).acls.find() == before
    done = admin.post("/security/acls", {**right, "principal": "bob", "resource": "for-bob"})
    assert "User:bob may do everything with topic for-bob" in done.said()


def test_lag_over_time_comes_from_the_consoles_own_user_for_those_who_may_see_it(
    console: Served, visitor: Visitor
) -> None:
    sampler = console.site.console.sampler
    assert sampler is not None
    console.run(sampler.sample())
    assert not sampler.problem and {"billing", "spies"} <= set(sampler.latest)
    visitor.log_in("ann", PASSWORD)
    assert '<polyline class="stroke"' in visitor.get("/groups/one?name=billing").text
    hidden = visitor.get("/groups/one?name=spies")
    assert hidden.status in (404, 502) and "polyline" not in hidden.text


def test_what_is_no_part_of_the_cluster_is_for_those_who_look_after_it(
    node: SecuredServer, certificates: Certificates
) -> None:
    """Databases and the folder of pipelines: to see them one may describe the cluster, to change
    them alter it."""
    right = Acl("cluster", "kafka-cluster", "literal", "User:bob", "*", "describe", "allow")
    Admin(at(node, "admin")).acls.add([right])
    tls = (certificates.server, None)
    with Served(at(node, "sampler"), login=True, tls=tls, outboxes=("sqlite://",)) as served:
        ann, bob, admin = (served.visitor(certificates.ca) for _ in range(3))
        for visitor, name in ((ann, "ann"), (bob, "bob"), (admin, "admin")):
            visitor.log_in(name, PASSWORD)
        asked = {"action": "retry", "id": "1", "outbox": "0"}
        for visitor, sees, changes in ((ann, 403, 403), (bob, 200, 403), (admin, 200, 502)):
            assert visitor.get("/outbox").status == sees
            assert visitor.get("/pipelines").status == sees
            assert visitor.post("/outbox", asked).status == changes
    Admin(at(node, "admin")).acls.remove([AclFilter(principal="User:bob", operation="describe")])


def test_two_people_at_once_are_two(console: Served, certificates: Certificates) -> None:
    ann, bob, admin = (console.visitor(certificates.ca) for _ in range(3))
    for visitor, name in ((ann, "ann"), (bob, "bob"), (admin, "admin")):
        visitor.log_in(name, PASSWORD)
    assert "orders" in ann.get("/topics").said()
    assert "orders" not in bob.get("/topics").said()
    assert "secret-plans" in admin.get("/topics").said()
    assert "bob Log out" in bob.get("/topics").said()
    stolen = ann.get("/create-topic").token()
    assert bob.post("/create-topic", {"name": "by-bob"}, token=stolen).status == 403


def test_changes_are_noted_with_names_and_without_secrets(
    visitor: Visitor, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        visitor.log_in("admin", PASSWORD)
        visitor.post("/create-topic", {"name": "made-by-admin"})
        visitor.post("/topics/made-by-admin/delete", {"typed": "another"})
    lines = [json.loads(line) for line in (state / "audit.jsonl").read_text().splitlines()]
    mine = [(each["person"], each["what"], each["done"]) for each in lines][-2:]
    assert mine[0] == ("admin (console)", "Created made-by-admin.", True)
    assert mine[1][0] == "admin (console)" and mine[1][1].startswith("Refused: Type the name")
    logins = (state / "logins.jsonl").read_text().splitlines()
    assert json.loads(logins[-1])["person"] == "admin" and "Logged in." in logins[-1]
    everything = "".join(path.read_bytes().decode(errors="replace") for path in state.iterdir())
    assert PASSWORD not in everything and PASSWORD not in caplog.text


@pytest.mark.integration
def test_wrong_passwords_are_refused_and_soon_not_even_tried(
    console: Served, certificates: Certificates
) -> None:
    visitor = console.visitor(certificates.ca)
    for _ in range(5):
        answer = visitor.log_in("mallory", "guess")
        assert answer.status == 401 and "does not know this user" in answer.said()
        assert "guess" not in answer.text
    assert visitor.log_in("mallory", "guess").status == 429
    assert "Overview" in console.visitor(certificates.ca).log_in("ann", PASSWORD).said()


def test_a_wrong_password_does_not_lose_the_page_that_was_asked_for(visitor: Visitor) -> None:
    wrong = visitor.log_in("bob", "wrong", to="/topics?q=a")
    assert '<input type="hidden" name="to" value="/topics?q=a">' in wrong.text


def test_a_person_whose_login_is_refused_later_leaves_nothing_behind(
    console: Served, visitor: Visitor
) -> None:
    visitor.log_in("ann", PASSWORD)
    people = console.site.console.people
    assert people is not None
    person = people.all()[-1]
    person.access.connection.settings["sasl.password"] = "changed meanwhile"
    assert visitor.get("/topics/orders/messages").status == 303
    assert "sasl.password" not in person.access.connection.settings, "it is forgotten"


def test_beyond_this_machine_only_with_tls_a_login_and_a_name(
    node: SecuredServer, certificates: Certificates
) -> None:
    safe = {"login": True, "tls": (certificates.server, None)}
    for more, said in (
        ({}, "--login and --tls-cert"),
        ({"login": True}, "--login and --tls-cert"),
        ({"tls": safe["tls"]}, "--login and --tls-cert"),
        (safe, "--name"),
    ):
        with pytest.raises(CannotServe, match=said):
            Site(at(node, "sampler"), Settings("0.0.0.0", 0, **more))
    Site(at(node, "sampler"), Settings("0.0.0.0", 0, names=("c.example",), **safe))  # type: ignore[arg-type]
    plain = ClientSettings({"bootstrap.servers": "localhost:1"})
    with pytest.raises(CannotServe, match="the login mechanism"):
        Site(plain, Settings("localhost", 0, login=True))
    with pytest.raises(CannotServe, match="cannot be used for TLS"):
        Site(plain, Settings("localhost", 0, tls=(certificates.ca, None)))


def test_without_a_user_of_its_own_the_console_samples_nothing(
    node: SecuredServer, certificates: Certificates
) -> None:
    nobody = at(node, "sampler")
    del nobody.settings["sasl.username"], nobody.settings["sasl.password"]
    with Served(nobody, login=True, tls=(certificates.server, None)) as served:
        assert served.site.console.sampler is None
        visitor = served.visitor(certificates.ca)
        visitor.log_in("ann", PASSWORD)
        assert visitor.get("/groups/one?name=billing").status == 200
