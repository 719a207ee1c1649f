"""`headrace acls` on a real broker with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.testing import Broker
from tests.sockets.cli.conftest import CommandLine

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def guarded() -> Iterator[CommandLine]:
    with Broker(settings=SETTINGS) as running:
        yield CommandLine(running.bootstrap)


def test_entries_are_added_listed_and_removed(guarded: CommandLine) -> None:
    guarded("acls", "add", "--principal", "alice", "--operation", "read", "--topic", "orders")
    guarded(
        "acls", "add", "-p", "User:bob", "-o", "all", "--topic", "ord", "--prefixed",
        "--deny", "--host", "10.0.0.1",
    )  # fmt: skip
    assert guarded.json("acls", "list") == [
        {
            "resource_type": "topic",
            "resource": "ord",
            "pattern": "prefixed",
            "principal": "User:bob",
            "host": "10.0.0.1",
            "operation": "all",
            "permission": "deny",
        },
        {
            "resource_type": "topic",
            "resource": "orders",
            "pattern": "literal",
            "principal": "User:alice",
            "host": "*",
            "operation": "read",
            "permission": "allow",
        },
    ]
    assert "ord..." in guarded("acls", "list")
    assert len(guarded.json("acls", "list", "--topic", "orders")) == 1
    assert len(guarded.json("acls", "list", "--topic", "orders", "--match")) == 2
    assert len(guarded.json("acls", "list", "--principal", "bob")) == 1
    gone = guarded.json("acls", "remove", "--principal", "bob", "--yes")
    assert [entry["principal"] for entry in gone] == ["User:bob"]
    assert len(guarded.json("acls", "list")) == 1


def test_what_clients_need_in_one_word(guarded: CommandLine) -> None:
    guarded("acls", "add", "-p", "shop", "--producer", "--topic", "orders",
            "--transactional-id", "shop-1")  # fmt: skip
    guarded("acls", "add", "-p", "mail", "--consumer", "--topic", "orders", "--group", "mailers")
    found = [
        (entry["principal"], entry["resource_type"], entry["resource"], entry["operation"])
        for entry in guarded.json("acls", "list")
    ]
    assert sorted(found) == [
        ("User:mail", "group", "mailers", "read"),
        ("User:mail", "topic", "orders", "describe"),
        ("User:mail", "topic", "orders", "read"),
        ("User:shop", "topic", "orders", "create"),
        ("User:shop", "topic", "orders", "describe"),
        ("User:shop", "topic", "orders", "write"),
        ("User:shop", "transactional-id", "shop-1", "describe"),
        ("User:shop", "transactional-id", "shop-1", "write"),
    ]
    gone = guarded.json("acls", "remove", "-p", "shop", "--producer", "--topic", "orders", "--yes")
    assert len(gone) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "--topic", "t", "-o", "read"), "Name the user"),
        (("add", "-p", "a", "-o", "read"), "Name the resource"),
        (("add", "-p", "a", "--topic", "t"), "Name the operation"),
        (("add", "-p", "a", "--topic", "t", "-o", "fly"), "is none of"),
        (
            ("add", "-p", "a", "--group", "g", "-o", "write"),
            "The operation write does not apply to a group",
        ),
        (("add", "-p", "a", "--cluster", "-o", "alter", "--prefixed"), "leave --prefixed out"),
        (("remove",), "Name the entries"),
    ],
)
def test_what_makes_no_sense_is_said(
    guarded: CommandLine, words: tuple[str, ...], said: str
) -> None:
    done = guarded._run(("acls", *words), "")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_node_without_an_authorizer_says_so(headrace: CommandLine) -> None:
    sentence = headrace.failure("acls", "list")
    assert "No Authorizer is configured" in sentence


def test_the_doctor_sees_who_may_write_later_only(guarded: CommandLine) -> None:
    for name in ("orders", "orders.delay"):
        guarded("topics", "create", name)
    guarded("acls", "add", "-p", "eve", "-o", "write", "--topic", "orders.delay")
    findings = guarded.json("doctor", "--bootstrap", guarded.bootstrap)
    [about] = [one for one in findings if one["about"] == "delay"]
    assert about["state"] == "watch" and "User:eve" in about["found"]
