"""Codes have Apache Kafka's names, numbers and retriability, as kio has them too."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from headrace.wire.protocol.errors import NONE, ErrorCode, KafkaError


def test_codes_are_those_of_kafka() -> None:
    ours = {(code.name, int(code), code.retriable) for code in ErrorCode}
    theirs = {(code.name.upper(), int(code.value), code.retriable) for code in KioErrorCode}
    assert ours == theirs


def test_each_code_has_one_sentence() -> None:
    for code in ErrorCode:
        assert code.description.endswith(".") and code.description[0].isupper(), code
    assert len({code.description for code in ErrorCode}) == len(ErrorCode)


def test_a_code_is_found_by_number_and_packs_as_one() -> None:
    assert ErrorCode(87) is ErrorCode.INVALID_RECORD
    assert NONE == 0 and not NONE


def test_a_refusal_explains_itself() -> None:
    assert str(KafkaError(ErrorCode.INVALID_RECORD, "record 3 has no key")) == (
        "INVALID_RECORD: record 3 has no key"
    )
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == (
        "NOT_CONTROLLER: This node is not the active controller."
    )
