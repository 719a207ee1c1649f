"""One finding of a check of a data folder, and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class CannotMend(Exception):
    """The repair cannot be done in this folder; the text has the reason and what to do."""


class Kind(StrEnum):
    DAMAGED = "damaged"  # flushed data has changed
    UNFINISHED = "unfinished"  # not flushed before the last stop; the next start repairs it
    NOTE = "note"  # nothing is wrong, but the user should know


class Remedy(StrEnum):
    """The ways of `segment repair` for a damaged file, by name."""

    FLIP = "flip-bits"  # look for the one bit that makes the checksum right
    REBUILD = "rebuild"  # rebuilt from the batches, at once or by the next start
    SET_ASIDE = "set-aside"  # a node starts without it
    EPOCH = "new-epoch"  # quorum-state, with an epoch above any that it may have held
    CUT_METADATA = "cut-metadata"  # loses the metadata log's records after the damage
    IDENTITY = "identity"  # meta.properties, from the metadata
    NONE = ""


@dataclass(slots=True)
class Finding:
    kind: Kind
    path: Path
    what: str
    position: int | None = None  # byte in the file
    size: int | None = None  # damaged bytes
    offset: int | None = None  # of the first damaged record
    until: int | None = None  # of the first good record after it
    remedies: tuple[Remedy, ...] = ()
    advice: str = ""  # what happens or what to do, as text
