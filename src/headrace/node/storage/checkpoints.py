"""The small files beside the logs, to the byte as Apache Kafka writes them.

Offsets by partition (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`, `cleaner-offset-checkpoint`), a log's leader epochs, a partition's
topic id, the data folder's `meta.properties`, and the file that marks a clean shutdown. These
functions convert between text and values; none of them touches a disk. A file that cannot be read
raises `MalformedCheckpoint`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from headrace.wire.protocol import uuids

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class MalformedCheckpoint(Exception):
    """A file that does not read as it should."""


Partition = tuple[str, int]  # topic, index


def _lines(entries: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(entries)), *entries)).encode()


def _entries(data: bytes) -> list[list[str]]:
    """The words of each entry behind the version and the count; an empty file has none."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint("not a text") from error
    if len(lines) < 2:
        if lines and lines[0] != "0":
            raise MalformedCheckpoint(f"version {lines[0]!r}, expected 0")
        return []
    if lines[0] != "0":
        raise MalformedCheckpoint(f"version {lines[0]!r}, expected 0")
    entries = [line.split() for line in lines[2:]]
    if lines[1] != str(len(entries)):
        raise MalformedCheckpoint(f"{len(entries)} entries, expected {lines[1]!r}")
    return entries


def offsets_to_bytes(offsets: Mapping[Partition, int]) -> bytes:
    return _lines([f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()])


def offsets_from_bytes(data: bytes) -> dict[Partition, int]:
    try:
        return {(t, int(p)): int(offset) for t, p, offset in _entries(data)}
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from error


def epochs_to_bytes(epochs: Iterable[tuple[int, int]]) -> bytes:
    return _lines([f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def epochs_from_bytes(data: bytes) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(start_offset)) for epoch, start_offset in _entries(data)]
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from error


def topic_id_to_bytes(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuids.to_text(topic_id)}".encode()


def topic_id_from_bytes(data: bytes) -> bytes:
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if int(fields["version"]) < 0:
            raise MalformedCheckpoint(f"version {fields['version']}")
        topic_id = uuids.from_text(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise MalformedCheckpoint(f"not a partition.metadata: {error}") from error
    if topic_id == uuids.ZERO_ID:
        raise MalformedCheckpoint("the zero id is no topic's")
    return topic_id


def properties_to_bytes(properties: Mapping[str, str]) -> bytes:
    """Returns the properties as java.util.Properties writes them, without the comment with the
    date."""
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items()]
    return "".join(lines).encode("latin-1")


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\")
    for special in "=:#!":
        text = text.replace(special, "\\" + special)
    return text


def properties_from_bytes(data: bytes) -> dict[str, str]:
    """Plain key=value lines with the escapes above: all that `meta.properties` needs."""
    properties = {}
    for line in data.decode("latin-1").splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, value = _split_at_separator(line)
        properties[key] = value
    return properties


def _split_at_separator(line: str) -> tuple[str, str]:
    parts = [""]
    escaped = False
    for character in line:
        if escaped or character not in "\\=:" or (character != "\\" and len(parts) == 2):
            parts[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append("")
    if len(parts) != 2:
        raise MalformedCheckpoint(f"{line!r} is not key=value")
    return parts[0].strip(), parts[1].strip()


def clean_shutdown_to_bytes(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def broker_epoch_of_clean_shutdown(data: bytes) -> int:
    """Returns -1 if the file does not have it (Apache Kafka before 3.7 wrote it empty)."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
