"""A group of lines of one file becomes a record for the topic. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Any

from headrace.services.shipping.formats import (
    AUTO,
    HEAD,
    LEVEL_SAID,
    LEVEL_WITHIN,
    TEXT,
    Entry,
    parsed,
    second_of,
)
from headrace.services.shipping.line_groups import Group
from headrace.services.shipping.lines import MIDDLE
from headrace.wire.contract.logs import LEVELS, LONGEST_SERVICE
from headrace.wire.contract.tracking import time_text

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LEVELS: dict[str | None, str] = {None: ""} | {one: f',"level":"{one}"' for one in LEVELS}
_quoted: Callable[[str], str] = json.encoder.encode_basestring  # as a text of JSON
Record = tuple[bytes, bytes]  # value, and the id that is its header MESSAGE_ID
# Characters kept of a record that the topic refuses as too large; then half of it, and so on.
SHORT, SHORTEST = 4096, 16
TOO_LARGE = "larger than the topic takes: the rest was left out"
# Clocks differ by a little. A time further ahead is wrong (a zone that was not named, most often),
# and would make pipelines take all others for late.
AHEAD_MS = 5 * 60_000
# Lines of a program have few sets of names. Each may be as long as the longest line.
FIELDS_REMEMBERED = 64
AHEAD = "its time is ahead of the clock (see --zone)"
SPACE = ord(" ")  # what `rstrip` removes is not larger
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(slots=True, kw_only=True)
class Origin:
    """The settings for all lines: their format, and their source."""

    host: str
    service: str | None = None
    form: str = AUTO
    zone: tzinfo = UTC

    def service_of(self, path: str) -> str:
        """Returns the given service, or the file's name up to its first dot."""
        return self.service or path.rpartition("/")[2].partition(".")[0] or "unnamed"


def record_id(file_id: str, start: int) -> str:
    return f"{file_id}:{start}"


def text_of(group: Group) -> tuple[str, str | None]:
    """The text of a group, and what was wrong with its bytes."""
    # A program that goes on at its old place in a file that was emptied leaves zeros before it.
    data = b"\n".join(line.rstrip(b"\r").strip(b"\0") for line in group.lines).rstrip()
    if group.start == 0:
        data = data.removeprefix(BYTE_ORDER_MARK)
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode(errors="backslashreplace"), "not UTF-8"


class RecordMaker:
    """Makes records of groups of one file, and counts what is odd about them.

    A value is put together from pieces that are JSON already, for most are the same for all lines
    of a file. It is what `encoded` makes, byte for byte: a test compares.
    """

    __slots__ = (
        *("_begin", "_file", "_file_id", "_host", "_latest_ms", "_origin", "_path", "_read_text"),
        *("_looks_for_web", "_seconds", "_service", "_takes_usual", "_usual_service"),
        *("bad", "blank", "cut"),
    )

    def __init__(self, file_id: str, path: str, origin: Origin, read_ms: int) -> None:
        """`read_ms` is the time of lines that name none."""
        self.bad = self.blank = self.cut = 0  # groups
        self._file_id, self._path, self._origin = file_id, path, origin
        self._read_text, self._latest_ms = time_text(read_ms), read_ms + AHEAD_MS
        self._service = origin.service_of(path)
        self._begin = f'{{"id":{_quoted(file_id)[:-1]}:'
        self._usual_service = f'","service":{_quoted(self._service)}'
        self._host = f',"host":{_quoted(origin.host)}'
        self._file = f',"file":{_quoted(path)}'
        self._looks_for_web = origin.form == AUTO
        self._takes_usual = (
            origin.form in (AUTO, TEXT)
            and len(self._service) <= LONGEST_SERVICE
            and _quoted(file_id) == f'"{file_id}"'
            and _is_unicode(path)
        )
        self._seconds: dict[str, str | None] = {}

    def record(self, group: Group) -> Record | None:
        """None for blank lines."""
        if self._takes_usual and group.cut is None and (usual := self._usual(group)) is not None:
            return usual
        text, wrong = _text_of_line(group) or text_of(group)
        if not text:
            self.blank += 1
            return None
        said, cut = self._said(text, group.cut), group.cut
        if wrong is not None:
            said.problem = f"{said.problem}; {wrong}" if said.problem else wrong
        time = self._read_text
        if said.time_ms is not None:
            time = time_text(said.time_ms)
            if said.time_ms > self._latest_ms:
                time = self._put_right(said, time)
        service = self._usual_service
        if said.service is not None or len(self._service) > LONGEST_SERVICE:
            service = f'","service":{_quoted(_service_of(said, self._service))}'
        tail = ""
        if said.fields:
            tail = _fields_named(tuple(said.fields)) % tuple(map(_quoted, said.fields.values()))
        if said.problem is not None:
            self.bad += 1
            tail += f',"problem":{_quoted(said.problem)}'
        if cut is not None:
            self.cut += 1
            tail += f',"cut":{_quoted(cut)}'
        start = group.start
        try:
            value = (
                f'{self._begin}{start}","time":"{time}{service}{self._host}{_LEVELS[said.level]}'
                f',"message":{_quoted(said.message)}{self._file}{tail}}}'
            ).encode()
        except UnicodeEncodeError:  # half of a pair of surrogates
            value = self._encoded(said, time, group)
        return value, record_id(self._file_id, start).encode()

    def _usual(self, group: Group) -> Record | None:
        """What `record` makes of a line of text that begins with a second, thousandths and a level,
        as most do; None for others. Half of the time: nothing is built but the value."""
        data, start = group.lines[0], group.start
        if len(group.lines) > 1 or not start or data[-1:] <= b" ":
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        head = HEAD.match(text)
        if head is None or (self._looks_for_web and '] "' in text):
            return None
        second, fraction, away, level = head.groups()
        if level is None or fraction is None or len(fraction) != 3 or not fraction.isascii():
            return None
        key = second + away if away else second
        try:
            time = self._seconds[key]
        except KeyError:
            time = self._seconds[key] = self._second_text(key)
        if time is None or head.end() > LEVEL_WITHIN:
            return None
        id = f"{self._file_id}:{start}"
        value = (
            f'{{"id":"{id}","time":"{time}{fraction}Z{self._usual_service}{self._host}'
            f'{_LEVELS[LEVEL_SAID[level]]},"message":{_quoted(text[head.start(4) :])}{self._file}}}'
        )
        return value.encode(), id.encode()

    def _second_text(self, said: str) -> str | None:
        """Returns the time up to its decimal point, as records have it. None: it is not a time, or
        may be too late."""
        second_ms = second_of(said, self._origin.zone)
        if second_ms is None or second_ms + 999 > self._latest_ms:
            return None
        return time_text(second_ms).removesuffix("000Z")

    def _said(self, text: str, cut: str | None) -> Entry:
        return Entry(text) if cut == MIDDLE else parsed(text, self._origin.form, self._origin.zone)

    def _put_right(self, said: Entry, time: str) -> str:
        """Replaces a time that is ahead of the clock by the time of reading; the original
        is kept."""
        said.fields["said_time"] = time
        said.problem = f"{said.problem}; {AHEAD}" if said.problem else AHEAD
        return self._read_text

    def _encoded(self, said: Entry, time: str, group: Group) -> bytes:
        """What `record` puts together, for texts that are no UTF-8."""
        value: dict[str, Any] = {
            "id": record_id(self._file_id, group.start),
            "time": time,
            "service": _service_of(said, self._service),
            "host": self._origin.host,
            "level": said.level,
            "message": said.message,
            "file": self._path,
            "fields": said.fields or None,
            "problem": said.problem,
            "cut": group.cut,
        }
        return encoded(value)


@lru_cache(maxsize=FIELDS_REMEMBERED)
def _fields_named(names: tuple[str, ...]) -> str:
    """The fields as JSON, with a place for each value."""
    pairs = ",".join(f"{_quoted(name).replace('%', '%%')}:%s" for name in names)
    return f',"fields":{{{pairs}}}'


def _is_unicode(text: str) -> bool:
    """Returns whether the text is valid Unicode; a file name with other bytes is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _service_of(said: Entry, usual: str) -> str:
    """Returns the service up to its longest length; a longer one also becomes a field, whole."""
    service = said.service or usual
    if len(service) <= LONGEST_SERVICE:
        return service
    said.fields["service"] = service
    return service[:LONGEST_SERVICE]


def _text_of_line(group: Group) -> tuple[str, None] | None:
    """What `text_of` gives, if the group is one line and nothing is to be taken off; else None."""
    data = group.lines[0]
    if len(group.lines) > 1 or not data or data[-1] <= SPACE or not data[0] or not group.start:
        return None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None


def encoded(value: dict[str, Any]) -> bytes:
    """Encodes a record. Fields that are None are left out; half of a surrogate pair is written as
    text. Names must not need escapes.

    Texts are joined here: json's encoder builds itself again for each call.
    """
    pairs = [
        f'"{name}":{_quoted(one) if type(one) is str else _dumps(one)}'
        for name, one in value.items()
        if one is not None
    ]
    try:
        return f"{{{','.join(pairs)}}}".encode()
    except UnicodeEncodeError:
        return _dumps(_as_unicode({k: one for k, one in value.items() if one is not None})).encode()


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(one) for name, one in value.items()}
    return value


def shortened(value: bytes) -> bytes:
    """Returns the same record with the beginning of its message only, for a topic that takes less.
    If it was shortened before, half of it; the same value if it cannot be shorter."""
    whole = json.loads(value)
    whole.pop("fields", None)
    message = whole["message"]
    again = whole.get("problem") == TOO_LARGE
    whole["message"] = message[: max(SHORTEST, len(message) // 2) if again else SHORT]
    whole["cut"] = "begin"
    whole["problem"] = TOO_LARGE
    return encoded(whole)
