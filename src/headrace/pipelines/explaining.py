"""What Spark says when a pipeline fails, without its stack, and what to do about it."""

from __future__ import annotations

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
# What a checkpoint's files are read with, and what it says of one that is cut off.
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


def explained(pipeline: Pipeline, said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = " ".join(lines[:2])[:600] if lines else "Spark gave no reason"
    lower = said.lower()

    def has(signs: tuple[str, ...]) -> bool:
        return any(sign in lower for sign in signs)

    if "MULTIPLE_SOURCE_ROW_MATCHING" in said:
        first = (
            "a batch has two rows with the same key: name the column that says which is newer "
            "with Table(..., newest=)"
        )
    elif has(GONE):
        first = (
            f"records that it had still to read are gone from {pipeline.source.name} (the topic "
            "was deleted, or retention was quicker); begin anew with `headrace pipeline reset "
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
            f"gone: put back what was there, or begin anew with `headrace pipeline reset "
            f"{pipeline.name}` ({first[:300]})"
        )
    elif has(DAMAGED):
        first = (
            "a file of its checkpoint or table is damaged: put them back from a copy, or begin "
            f"anew with `headrace pipeline reset {pipeline.name}` ({first[:300]})"
        )
    return f"{pipeline.name} failed: {first}."
