"""The parameters of a stream: where it begins, its format, its filter. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.records import Record
from headrace.services.http.refusal import UNPROCESSABLE, Refusal
from headrace.services.http.streams.record_forms import AUTO, FORMS
from headrace.services.http.writes.writes import moment_ms

QUESTIONS = ("from", "format", "key", "header", "partition")
BEGINNING, END = "beginning", "end"


@dataclass(slots=True)
class StreamRequest:
    begin: str | int = END  # or a moment in milliseconds since 1970
    form: str = AUTO
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None  # None: any value
    partition: int | None = None

    @property
    def lets_all_through(self) -> bool:
        return self.key is None and self.header is None and self.partition is None

    def lets_through(self, record: Record) -> bool:
        if self.partition is not None and record.partition != self.partition:
            return False
        if self.key is not None and record.key != self.key:
            return False
        if self.header is None:
            return True
        name, wanted = self.header
        return any(
            name == each and (wanted is None or value == wanted) for each, value in record.headers
        )


def read_stream_request(given: dict[str, str]) -> StreamRequest:
    asked = StreamRequest()
    begin = given.get("from", END)
    if begin in (BEGINNING, END):
        asked.begin = begin
    else:
        found = moment_ms(int(begin) if begin.isdecimal() and len(begin) < 16 else begin, "from")
        assert found is not None
        asked.begin = found
    asked.form = given.get("format", AUTO)
    if asked.form not in FORMS:
        raise Refusal(UNPROCESSABLE, f"The format is one of {', '.join(FORMS)}.")
    if "key" in given:
        asked.key = given["key"].encode("utf-8", "replace")
    if "header" in given:
        name, colon, value = given["header"].partition(":")
        if not name:
            raise Refusal(UNPROCESSABLE, "header is NAME or NAME:VALUE.")
        asked.header = name, value.encode("utf-8", "replace") if colon else None
    if "partition" in given:
        text = given["partition"]
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise Refusal(UNPROCESSABLE, "partition is a number.")
        asked.partition = int(text)
    return asked
