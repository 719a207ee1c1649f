"""The line of a JAAS setting."""

from __future__ import annotations

import pytest

from headrace.node.serving.authentication.jaas import MalformedJaas, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_options_with_and_without_quotes() -> None:
    module = parse(
        f'{PLAIN} required username="admin" password=secret\n user_alice="a \\"b\\" = c;" ;'
    )
    assert module.name == PLAIN
    assert module.options == {
        "username": "admin",
        "password": "secret",
        "user_alice": 'a "b" = c;',
    }
    assert parse(f"{PLAIN} REQUIRED;").options == {}


@pytest.mark.parametrize(
    "line",
    [
        "",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f"{PLAIN} maybe;",
        f"{PLAIN} required user_alice;",
        f"{PLAIN} required user_alice=;",
        f"{PLAIN} required =secret user_alice;",
        f'{PLAIN} required user_alice="secret;',
        f"{PLAIN} required; {PLAIN} required;",
    ],
)
def test_what_cannot_be_read_is_told_without_its_values(line: str) -> None:
    with pytest.raises(MalformedJaas) as fault:
        parse(line)
    assert "secret" not in str(fault.value)
