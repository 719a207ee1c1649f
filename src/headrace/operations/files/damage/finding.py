"""One thing that a check of a data folder found, and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class CannotMend(Exception):
    """What was asked cannot be done with this folder; the text says why and what to do."""


class Kind(StrEnum):
    DAMAGED = "damaged"  # what was flushed is not what is there
    UNFINISHED = "unfinished"  # not flushed before the last stop; the next start puts it right
    NOTE = "note"  # nothing is wrong, but somebody should know


class Remedy(StrEnum):
    """The ways of `segment repair` for a damaged file, by name."""

    FLIP = "flip-bits"  # look for the one bit that makes the checksum right
    REBUILD = "rebuild"  # rebuilt from the batches, at once or by the next start
    SET_ASIDE = "set-aside"  # a start goes on without it
    EPOCH = "new-epoch"  # quorum-state, with an epoch above every one that it may have held
    CUT_METADATA = "cut-metadata"  # loses what the metadata log has behind the damage
    IDENTITY = "identity"  # meta.properties, from what the metadata says
    NONE = ""


@dataclass(slots=True)
class Finding:
    kind: Kind
    path: Path
    what: str
    position: int | None = None  # byte in the file
    size: int | None = None  # bytes that are concerned
    offset: int | None = None  # of the first record that is concerned
    until: int | None = None  # of the first record behind it that is good
    remedies: tuple[Remedy, ...] = ()
    advice: str = ""  # what happens or what to do, for people
