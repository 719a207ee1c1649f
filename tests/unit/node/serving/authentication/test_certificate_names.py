"""Names in certificates, and the users that rules make of them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from headrace.cli.secured.certificates import Authority
from headrace.node.serving.authentication.certificate_names import (
    MalformedCertificate,
    MalformedRules,
    NameRules,
    subject_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new("An authority", now=NOW, lasts=timedelta(days=1))


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([("CN", "alice")], "CN=alice"),
        (
            [("C", "DE"), ("O", "A shop"), ("OU", "web"), ("CN", "alice")],
            "CN=alice,OU=web,O=A shop,C=DE",
        ),
        ([("CN", 'a,b+c"d\\e<f>g;h=#')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=\\#'),
        ([("CN", " a  b ")], "CN=\\ a  b\\ "),
        ([("CN", "jürgen")], "CN=jürgen"),
        # As Java writes what it has no keyword for: the value's DER in hexadecimal.
        ([("CN", "a"), ("emailAddress", "a@b.c")], "1.2.840.113549.1.9.1=#16056140622e63,CN=a"),
    ],
)
def test_a_name_is_written_as_java_writes_it(
    authority: Authority, parts: list[tuple[str, str]], name: str
) -> None:
    issued = authority.issue(parts, now=NOW, lasts=timedelta(days=1))
    assert subject_of(ssl.PEM_cert_to_DER_cert(issued.certificate)) == name


@pytest.mark.parametrize("cut", [0, 1, 10, 40, 100])
def test_what_is_no_certificate_has_no_name(authority: Authority, cut: int) -> None:
    issued = authority.issue([("CN", "a")], now=NOW, lasts=timedelta(days=1))
    with pytest.raises(MalformedCertificate):
        subject_of(ssl.PEM_cert_to_DER_cert(issued.certificate)[:cut])


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=alice,O=shop", "CN=alice,O=shop"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
        ("RULE:^CN=(.*?),.*$/$1/L", "CN=Alice,O=x", "alice"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/U", "CN=a,O=b", "A@B"),
        ("RULE:^CN=x$/never/,RULE:^CN=(.*)$/$1/,DEFAULT", "CN=alice", "alice"),
        ("RULE:^CN=x$/never/, DEFAULT", "CN=alice", "CN=alice"),
        ("RULE:^CN=x$/never/", "CN=alice", None),
        ("RULE:CN=(.*)/$1@$4/", "CN=a", "a@$4"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        (r"RULE:CN=(a\/b)/\$1/", "CN=a/b", "$1"),
        ("", "CN=alice", None),
    ],
)
def test_rules(rules: str, name: str, user: str | None) -> None:
    assert NameRules(rules).user_of(name) == user


@pytest.mark.parametrize("rules", ["RULE:CN=(.*)", "RULE:(/$1/", "SOMETHING", "DEFAULT RULE:a/b/"])
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(MalformedRules):
        NameRules(rules)


def test_no_name_makes_a_rule_slow() -> None:
    """A pattern that would take a backtracking engine for ever."""
    assert NameRules("RULE:^(a+)+$/$1/,DEFAULT").user_of("a" * 5000 + "!") is not None
