"""Errors of Spark when a pipeline fails, without its stack, and the remedies."""

from __future__ import annotations

import re

from headrace.pipelines.declaration import Pipeline

GONE = (
    "data loss",
    "failondataloss",
    "partitionoffsetchanged",
    "unknowntopicorpartition",
    "kafka_data_loss",
    "this server does not host this topic",
)
CHANGED = (
    "delta_source_table_ignore_changes",
    "delta_source_ignore_delete",
    "cannot process overwrite snapshot",
    "cannot process delete snapshot",
)
MISMATCH = (
    "delta_failed_to_merge_fields",
    "delta_merge_unresolved_expression",
    "a schema mismatch detected when writing",
    "incompatible_data_for_table",
)
# Error texts about a checkpoint's files that are damaged or incomplete.
DAMAGED = (
    "checksum error",
    "failed to read log file",
    "log file was malformed",
    "incomplete log file",
    "in the checkpoint offsets and now there are",
    "unexpected end-of-input",
    "no content to map due to end-of-input",
    "next on empty iterator",
    'expected e.g. {"topica"',  # offsets
)
OTHER_STATE = (
    "schema_not_compatible",
    "column_family_schema_incompatible",
    "row_format_validation_failure",
    "cannot_load_state_store",
    "not_match_in_state_metadata",
)


PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Warning|Stop\w*))(?:: (.*))?$")
CAUSE = re.compile(r"^Caused by: ([\w.$]+): (.+)$", re.MULTILINE)
NO_COLUMN = re.compile(
    r"\[UNRESOLVED_COLUMN[^\]]*\].*? with name `?(.+?)`? cannot be resolved"
    r"(?:\. Did you mean one of the following\? \[(.*?)\])?",
    re.DOTALL,
)
ERROR_CLASS, SQL_STATE = re.compile(r"^\[[A-Z0-9_.]+\] "), re.compile(r"\s*SQLSTATE: \w{5}.*$")
# Frames that are not in the user's own files.
OURS = ("/pyspark/", "/py4j/", "/headrace/")
MOST, MOST_CODE = 400, 120


def innermost(said: str) -> str:
    """The cause that all others come from, without stacks: of Python its last error and the line of
    the person's own code, of Java the last cause, else the first line."""
    if (column := NO_COLUMN.search(said)) is not None:
        there = (column[2] or "").replace("`", "")
        return f"there is no column {column[1].replace('`', '')}" + (
            f"; there are {there}" if there else ""
        )
    if "Traceback (most recent call last)" in said and (python := _of_python(said)):
        return python
    causes = CAUSE.findall(said)
    text = causes[-1][1] if causes else " ".join(line.strip() for line in said.splitlines()[:2])
    return SQL_STATE.sub("", ERROR_CLASS.sub("", text.strip())).rstrip(" .;")[:MOST]


def _of_python(said: str) -> str | None:
    trace = said[said.rindex("Traceback (most recent call last)") :]
    where, error, own = "", None, False
    for line in trace.splitlines()[1:]:
        text = line.strip()
        if (frame := PYTHON_FRAME.match(text)) is not None:
            own = not any(part in frame[1] for part in OURS)
            if own:
                where = f" in {frame[3]} ({frame[1].rpartition('/')[2]}, line {frame[2]})"
        elif own and where.endswith(")") and line.startswith("    ") and set(text) - set("^~ "):
            where = f"{where[:-1]}: {text[:MOST_CODE]})"
            own = False
        elif (found := PYTHON_ERROR.match(text)) is not None:
            name, message = found[1].rpartition(".")[2], found[2]
            error = f"{name}: {message}" if message else name
            break
    return None if error is None else f"{error}{where}"[:MOST]


def is_gone(said: str) -> bool:
    """Returns whether records that had still to be read have been deleted."""
    return any(sign in said.lower() for sign in GONE)


def explained(pipeline: Pipeline, said: str) -> str:
    first = innermost(said) if said.strip() else "Spark gave no reason"
    lower = said.lower()

    def has(signs: tuple[str, ...]) -> bool:
        return any(sign in lower for sign in signs)

    if "MULTIPLE_SOURCE_ROW_MATCHING" in said:
        first = (
            "a batch has two rows with the same key: name the column that says which is newer "
            "with Table(..., newest=)"
        )
    elif is_gone(said):
        first = (
            f"records that it had still to read are gone from {pipeline.source.name} (the topic "
            "was deleted, or retention was quicker); start over with `headrace pipeline reset "
            f"{pipeline.name}`, or go on without them with options={{'failOnDataLoss': 'false'}}"
        )
    elif has(CHANGED):
        first = (
            f"rows of {pipeline.source.name} were changed or removed, and a stream reads only what "
            "is added; read it with --history, or let the reader pass over them with options="
        )
    elif has(MISMATCH):
        first = (
            f"its rows do not fit the table {pipeline.sink.name}, which has other columns or types "
            f"({first[:300]})"
        )
    elif has(OTHER_STATE):
        first = (
            "its checkpoint holds the state of another function or schema, or a file of it is "
            f"gone: put back what was there, or start over with `headrace pipeline reset "
            f"{pipeline.name}` ({first[:300]})"
        )
    elif has(DAMAGED):
        first = (
            "a file of its checkpoint or table is damaged: put them back from a copy, or start "
            f"over with `headrace pipeline reset {pipeline.name}` ({first[:300]})"
        )
    return f"{pipeline.name} failed: {first}."
