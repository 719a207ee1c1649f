"""Changing users, rights and quotas in the console: what is done, shown as a command and audited;
and who may not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app as cli
from headrace.client.admin.acls import Acl
from headrace.client.admin.admin import Admin
from headrace.client.connection import connection
from headrace.testing import Broker
from tests.console.full_cluster import HOSTILE
from tests.console.served import Served, Visitor

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with Broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Admin:
    return Admin(connection(bootstrap=broker.bootstrap))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def visitor(broker: Broker, state: Path) -> Iterator[Visitor]:
    with Served(broker.bootstrap, state=state) as served:
        yield served.visitor()


def audit_lines(state: Path) -> list[str]:
    lines = (state / "audit.jsonl").read_text().splitlines()
    return [json.loads(line)["what"] for line in lines]


def command_in(said: str) -> str:
    found = re.search(r"The same on the command line (headrace .*?) Copy", said)
    assert found is not None, said[:500]
    return found[1]


# ---- users


def test_a_user_is_added_with_a_password_that_nobody_else_reads(
    visitor: Visitor, admin: Admin, state: Path
) -> None:
    page = visitor.post("/security/users", {"user": "ann", "password": "p1anted-secret"})
    assert "Added the user ann." in page.said() and "headrace users add ann" in page.said()
    assert "p1anted" not in page.text
    assert [each.name for each in admin.users.all()] == ["ann"]
    again = visitor.post("/security/users", {"user": "ann", "password": "p1anted-other"})
    assert "ann has a new password." in again.said()
    assert "p1anted" not in "".join(path.read_text("latin-1") for path in state.glob("*.jsonl"))


def test_a_password_that_is_made_up_is_told_once(visitor: Visitor, state: Path) -> None:
    page = visitor.post("/security/users", {"user": "eve", "password": ""})
    found = re.search(r"The password of eve, shown this once: (\S+)", page.said())
    assert found is not None and len(found[1]) >= 24
    assert "headrace users add --generate eve" in page.said()
    assert found[1] not in visitor.get("/security").text
    assert found[1] not in (state / "audit.jsonl").read_text()
    assert "Added the user eve." in audit_lines(state)


def test_a_short_password_and_an_odd_name_are_refused(visitor: Visitor, admin: Admin) -> None:
    before = admin.users.all()
    for fields, said in (
        ({"user": "tim", "password": "short"}, "at least 8 signs"),
        ({"user": "a\x00b", "password": "long enough"}, "can be printed"),
        ({"user": " ", "password": "long enough"}, "name is missing"),
    ):
        answer = visitor.post("/security/users", fields)
        assert answer.status == 400 and said in answer.said()
    assert admin.users.all() == before


def test_a_user_is_removed_with_the_name_typed(visitor: Visitor, admin: Admin) -> None:
    visitor.post("/security/users", {"user": "--help", "password": "long enough"})
    refused = visitor.post("/security/users/remove", {"user": "--help", "typed": "help"})
    assert refused.status == 400 and "Nothing was changed" in refused.said()
    done = visitor.post("/security/users/remove", {"user": "--help", "typed": "--help"})
    assert "Removed the user --help" in done.said()
    assert command_in(done.said()).endswith("-- --help")
    assert "--help" not in [each.name for each in admin.users.all()]


# ---- rights


def test_what_a_consumer_needs_is_given_and_taken(
    visitor: Visitor, admin: Admin, broker: Broker
) -> None:
    given = {"principal": "ann", "permission": "allow", "access": "consumer",
             "resource_type": "topic", "resource": "orders"}  # fmt: skip
    page = visitor.post("/security/acls", given)
    mine = [each for each in admin.acls.find() if each.resource == "orders"]
    assert {each.operation for each in mine} == {"read", "describe"}
    assert "User:ann may read topic orders" in page.said()
    # The command that was shown does the same.
    for entry in mine:
        taken = visitor.post("/security/acls/remove", fields_of(entry))
        assert "Removed: User:ann" in taken.said()
    assert not [each for each in admin.acls.find() if each.resource == "orders"]
    words = shlex.split(command_in(page.said()))[1:]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert [each for each in admin.acls.find() if each.resource == "orders"] == mine


def fields_of(entry: Acl) -> dict[str, str]:
    return {name: getattr(entry, name) for name in Acl.__dataclass_fields__}


def test_one_entry_goes_and_its_neighbours_stay(visitor: Visitor, admin: Admin) -> None:
    entries = [
        Acl("topic", "pay", "prefixed", "User:eve", "10.0.0.7", "read", "deny"),
        Acl("topic", "pay", "prefixed", "User:eve", "10.0.0.7", "read", "allow"),
        Acl("topic", "pay", "literal", "User:eve", "10.0.0.7", "read", "deny"),
    ]
    admin.acls.add(entries)
    done = visitor.post("/security/acls/remove", fields_of(entries[0]))
    assert "--prefixed --host 10.0.0.7 --deny --yes" in done.said()
    left = [each for each in admin.acls.find() if each.resource == "pay"]
    assert sorted(left) == sorted(entries[1:])
    gone = visitor.post("/security/acls/remove", fields_of(entries[0]))
    assert gone.status == 502 and "no longer exists" in gone.said()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resource_type": "planet"}, "Choose a resource"),
        ({"resource": ""}, "name is missing"),
        ({"resource": "*", "prefixed": "1"}, "not the beginning of a name"),
        ({"access": "consumer", "resource_type": "cluster"}, "needs no permission on"),
        ({"access": "write", "resource_type": "group"}, "is not an operation on"),
        ({"access": ""}, "possible: read"),
        ({"principal": ""}, "Who is missing"),
    ],
)
def test_a_right_that_makes_no_sense_is_refused(
    visitor: Visitor, admin: Admin, change: dict[str, str], said: str
) -> None:
    before = admin.acls.find()
    fields = {"principal": "ann", "access": "read", "resource_type": "topic", "resource": "x"}
    answer = visitor.post("/security/acls", fields | change)
    assert answer.status == 400 and said in answer.said()
    assert admin.acls.find() == before


# ---- quotas


def test_a_limit_is_set_and_removed(visitor: Visitor, admin: Admin, state: Path) -> None:
    asked = {"user": "ann", "default-client-id": "1", "limit": "producer_byte_rate",
             "amount": "1048576"}  # fmt: skip
    page = visitor.post("/security/quotas", asked)
    assert "producer_byte_rate is 1048576 now" in page.said()
    command = command_in(page.said())
    assert "quotas set producer_byte_rate=1048576 --user ann --default client-id" in command
    [quota] = admin.quotas.all()
    assert quota.entity == {"user": "ann", "client-id": None}
    assert "1,048,576" in visitor.get("/security").said()
    gone = visitor.post("/security/quotas/remove", asked)
    assert "without a limit of its own" in gone.said() and admin.quotas.all() == []
    assert any("producer_byte_rate is 1048576" in line for line in audit_lines(state))


@pytest.mark.parametrize(
    "change", [{"amount": "nan"}, {"amount": "-1"}, {"amount": "x"}, {"user": ""}, {"limit": "y"}]
)
def test_a_limit_that_makes_no_sense_is_refused(
    visitor: Visitor, admin: Admin, change: dict[str, str]
) -> None:
    asked = {"user": "ann", "limit": "consumer_byte_rate", "amount": "5"}
    assert visitor.post("/security/quotas", asked | change).status == 400
    assert admin.quotas.all() == []


# ---- names that others chose


def test_hostile_names_are_text_and_can_be_dealt_with(visitor: Visitor, admin: Admin) -> None:
    admin.users.set_password(HOSTILE, "long enough", mechanism="SCRAM-SHA-256")
    admin.acls.add([Acl("group", HOSTILE, "literal", f"User:{HOSTILE}", "*", "read", "allow")])
    admin.quotas.alter({"client-id": HOSTILE}, {"consumer_byte_rate": 7.0})
    page = visitor.get("/security")
    assert "<script>doc" not in page.text and HOSTILE in page.said()
    visitor.post("/security/users/remove", {"user": HOSTILE, "typed": HOSTILE})
    entry = Acl("group", HOSTILE, "literal", f"User:{HOSTILE}", "*", "read", "allow")
    visitor.post("/security/acls/remove", fields_of(entry))
    visitor.post("/security/quotas/remove", {"client-id": HOSTILE, "limit": "consumer_byte_rate"})
    assert HOSTILE not in str((admin.users.all(), admin.acls.find(), admin.quotas.all()))


def test_a_read_only_console_shows_no_forms_and_takes_none(
    broker: Broker, admin: Admin, visitor: Visitor
) -> None:
    with Served(broker.bootstrap, read_only=True) as served:
        reader = served.visitor()
        assert 'method="post"' not in reader.get("/security").text
        token = "0" * 64
        for path in ("users", "users/remove", "acls", "acls/remove", "quotas", "quotas/remove"):
            answer = reader.post(f"/security/{path}", {"user": "x"}, token=token)
            assert answer.status == 403 and "read-only" in answer.said()


# ---- the checkup


def test_the_checkup_says_who_may_write_with_a_delay_but_not_directly(
    visitor: Visitor, admin: Admin
) -> None:
    """As `headrace doctor` does, and what others named stays text."""
    page = visitor.get("/cluster/checkup")
    assert "No problems found." in page.said() and "answers at" in page.said()
    assert "headrace doctor" in page.said()
    for name in ("checked", "checked.delay"):
        admin.topics.create(name)
    entry = Acl("topic", "checked.delay", "literal", f"User:{HOSTILE}", "*", "write", "allow")
    admin.acls.add([entry])
    page = visitor.get("/cluster/checkup")
    assert "0 problems, 1 warning." in page.said()
    assert "may write to checked.delay, and so with a delay to checked" in page.said()
    assert "headrace acls list --match --topic checked.delay" in page.said()
    assert HOSTILE not in page.text
    assert page.text.index("badge warn") < page.text.index("badge good"), "the worst comes first"
