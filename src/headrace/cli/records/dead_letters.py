"""`headrace dead-letters`: what could not be handled, why, and what to do with it.

`redrive` sends letters to the group that failed and to nobody else; `discard` puts them away. Both
show what they would do and do it only with --execute, and both leave a record of who did what.
"""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.key_values import key_values
from headrace.services.redrive.letters import DeadLetter, LetterId, Selection
from headrace.services.redrive.redriven_letter import MOST_REDRIVES
from headrace.services.redrive.service import DeadLetters, Step
from headrace.services.redrive.settled import Settled

app = typer.Typer(
    help="Look at dead letters, send them again, discard them.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.", show_default=False)
]
LetterIds = Annotated[
    list[str],
    typer.Argument(metavar="[PARTITION/OFFSET]...", help="Only these.", show_default=False),
]
Key = Annotated[str | None, typer.Option(help="Only letters with this key.")]
Error = Annotated[
    str | None, typer.Option(help="Only letters whose error or message contains this.")
]
Header = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Only letters with this header.")
]
Since = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"], help="In UTC.")
]
Until = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"], help="In UTC.")
]
Limit = Annotated[int, typer.Option(min=1, help="At most this many.")]
Execute = Annotated[
    bool,
    typer.Option("--execute/--dry-run", help="Execute it; --dry-run, the default, only shows it."),
]
Reason = Annotated[str, typer.Option(help="The reason, for the journal.")]


@app.command("list")
@cluster_options
def list_letters(
    at: At,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Without it, all topics of letters.")
    ] = None,
    key: Key = None,
    error: Error = None,
    header: Header = [],
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    settled: Annotated[
        bool, typer.Option("--settled", help="Also letters that were sent again or discarded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the topics of dead letters, or the letters of one."""
    chosen = selection([], key, error, header, since, until)
    with at.connection() as cluster:
        letters = DeadLetters(cluster)
        if topic is None:
            _list_topics(letters, as_json=as_json)
            return
        found = list(islice(letters.letters(topic, chosen, also_settled=settled), limit))
    if as_json:
        output.answer_json([as_object(letter, entry) for letter, entry in found])
    elif not found:
        output.note(f"No letter waits in {topic}.")
    else:
        _letter_table(found)


def _list_topics(letters: DeadLetters, *, as_json: bool) -> None:
    topics = letters.topics()
    if as_json:
        output.answer_json(topics)
    elif not topics:
        output.note("There are no dead letters.")
    else:
        output.table(
            ("topic", "of", "group", "waiting", "settled", "oldest"),
            [
                (t.topic, t.origin_topic, t.group, t.waiting, t.settled, moment(t.oldest_ms))
                for t in topics
            ],
        )


def _letter_table(found: list[tuple[DeadLetter, Settled | None]]) -> None:
    output.table(
        ("letter", "parked", "key", "attempts", "error", "settled"),
        [
            (
                f"{letter.partition}/{letter.offset}",
                moment(letter.parked_at_ms),
                text(letter.key),
                letter.attempts,
                shortened(letter.reason),
                None if entry is None else f"{entry.action} by {entry.by}",
            )
            for letter, entry in found
        ],
    )


@app.command()
@cluster_options
def show(
    at: At,
    topic: Topic,
    letter_ids: Annotated[
        list[str], typer.Argument(metavar="PARTITION/OFFSET...", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Show letters whole: value, headers, error and stack."""
    chosen = selection(letter_ids, None, None, [], None, None)
    with at.connection() as cluster:
        found = list(DeadLetters(cluster).letters(topic, chosen, also_settled=True))
    if not found:
        raise Failure(f"{topic} has no such letter; headrace dead-letters list {topic} shows them.")
    if as_json:
        output.answer_json([as_object(letter, entry) for letter, entry in found])
        return
    for letter, entry in found:
        _show(letter, entry)


def _show(letter: DeadLetter, entry: Settled | None) -> None:
    if letter.group is None:
        output.say(f"{letter.name}, written {moment(letter.parked_at_ms)}")
        output.say("It does not name the group that failed: no app wrote it, or not as a letter.")
    else:
        origin = f"{letter.origin_topic}/{letter.origin_partition}/{letter.origin_offset}"
        output.say(f"{letter.name}, first read at {origin} by group {letter.group}")
        attempts = output.count(letter.attempts, "attempt")
        output.say(f"parked {moment(letter.parked_at_ms)} after {attempts}, the first")
        output.say(f"at {moment(letter.first_at_ms)}; sent again so far: {letter.redrives}")
    if entry is not None:
        output.say(f"{entry.action} by {entry.by} at {moment(entry.at_ms)} {entry.reason}")
    output.say(f"key: {text(letter.key)}")
    for name, value in letter.headers:
        if not name.startswith("headrace-"):
            output.say(f"{name}: {text(value)}")
    output.say(f"value: {text(letter.value)}")
    if letter.stack or letter.error:
        output.say_lines(letter.stack or f"{letter.error}: {letter.message}")


@app.command()
@cluster_options
def redrive(
    at: At,
    topic: Topic,
    letter_ids: LetterIds = [],
    key: Key = None,
    error: Error = None,
    header: Header = [],
    since: Since = None,
    until: Until = None,
    limit: Limit = 1_000_000,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Letters per second.")] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Open each value in $EDITOR first.")] = False,
    value_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Send this value instead.")
    ] = None,
    most_redrives: Annotated[
        int, typer.Option(min=1, help="Refuse letters that came back this often.")
    ] = MOST_REDRIVES,
    reason: Reason = "",
    by: Annotated[
        str | None, typer.Option(help="Your name for the journal (default: your user).")
    ] = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Send letters again, only to the group that failed."""
    if edit and value_file is not None:
        raise Failure("Give either --edit or --value-file.")
    chosen = selection(letter_ids, key, error, header, since, until)
    with at.connection() as cluster:
        letters = DeadLetters(cluster)
        if not execute:
            _would(letters, topic, chosen, limit, "sent again", as_json=as_json)
            return
        steps = letters.redrive(
            topic,
            chosen,
            by=by or whoever(),
            reason=reason,
            rate=rate,
            most_redrives=most_redrives,
            edit=_editing(edit, value_file),
            limit=limit,
        )
        _report(steps, "sent again", as_json=as_json)


@app.command()
@cluster_options
def discard(
    at: At,
    topic: Topic,
    letter_ids: LetterIds = [],
    key: Key = None,
    error: Error = None,
    header: Header = [],
    since: Since = None,
    until: Until = None,
    limit: Limit = 1_000_000,
    reason: Reason = "",
    by: Annotated[
        str | None, typer.Option(help="Your name for the journal (default: your user).")
    ] = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Discard letters: no longer listed, deleted with their topic's retention."""
    chosen = selection(letter_ids, key, error, header, since, until)
    with at.connection() as cluster:
        letters = DeadLetters(cluster)
        if not execute:
            _would(letters, topic, chosen, limit, "put away", as_json=as_json)
            return
        steps = letters.discard(topic, chosen, by=by or whoever(), reason=reason, limit=limit)
        _report(steps, "put away", as_json=as_json)


def _would(
    letters: DeadLetters,
    topic: str,
    chosen: Selection,
    limit: int,
    done: str,
    *,
    as_json: bool,
) -> None:
    found = list(islice(letters.letters(topic, chosen), limit))
    if as_json:
        output.answer_json([as_object(letter, None) for letter, _ in found])
        return
    if found:
        _letter_table(found[:20])
    more = f" ({len(found) - 20:,} more not shown)" if len(found) > 20 else ""
    output.note(
        f"{output.count(len(found), 'letter')} would be {done}{more}. Add --execute to do it."
    )


def _report(steps: Iterator[Step], done: str, *, as_json: bool) -> None:
    count, refused = 0, []
    for step in steps:
        if step.refusal:
            refused.append(step)
            output.note(step.refusal)
        else:
            count += 1
            if count % 10_000 == 0:
                output.note(f"{count:,} {done} ...")
    if as_json:
        refusals = [{"letter": step.letter.name, "why": step.refusal} for step in refused]
        output.answer_json({"done": count, "refused": refusals})
    else:
        output.say(f"{output.count(count, 'letter')} {done}.")
    if refused:
        raise Failure(f"{output.count(len(refused), 'letter')} refused, see above.")


# ---- what the options mean


def selection(
    letter_ids: list[str],
    key: str | None,
    error: str | None,
    header: list[str],
    since: datetime | None,
    until: datetime | None,
) -> Selection:
    return Selection(
        letter_ids=frozenset(_letter_id(given) for given in letter_ids) if letter_ids else None,
        key=None if key is None else key.encode(),
        error=error,
        headers=key_values(header, option="--header"),
        since_ms=_milliseconds(since),
        until_ms=_milliseconds(until),
    )


def _letter_id(given: str) -> LetterId:
    partition, slash, offset = given.partition("/")
    if not slash or not partition.isdecimal() or not offset.isdecimal():
        raise Failure(f"{given} is not PARTITION/OFFSET, such as 0/17.")
    return int(partition), int(offset)


def _milliseconds(when: datetime | None) -> int | None:
    return None if when is None else int(when.replace(tzinfo=UTC).timestamp() * 1000)


def whoever() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name, as in some containers
        return f"{os.getuid()}@{socket.gethostname()}"


def _editing(edit: bool, value_file: Path | None) -> Callable[[DeadLetter], bytes | None] | None:
    if value_file is not None:
        value = value_file.read_bytes()
        return lambda letter: value
    return _edited if edit else None


def _edited(letter: DeadLetter) -> bytes | None:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(letter.value or b"")
        file.flush()
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        ended = subprocess.run([*editor, file.name], check=False)
        if ended.returncode != 0:
            raise Failure(f"The editor ended with {ended.returncode}; nothing more was sent.")
        value = Path(file.name).read_bytes()
    return None if letter.value is None and not value else value


# ---- how letters look


def as_object(letter: DeadLetter, entry: Settled | None) -> dict[str, object]:
    return {
        "letter": f"{letter.partition}/{letter.offset}",
        "parked_at_ms": letter.parked_at_ms,
        "key": text(letter.key),
        "value": text(letter.value),
        "headers": [[name, text(value)] for name, value in letter.headers],
        "error": letter.error,
        "message": letter.message,
        "attempts": letter.attempts,
        "origin": [letter.origin_topic, letter.origin_partition, letter.origin_offset],
        "group": letter.group,
        "redrives": letter.redrives,
        "settled": entry,
    }


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def moment(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a producer may give any number
        return f"{time_ms} ms"


def shortened(line: str, most: int = 60) -> str:
    first = line.partition("\n")[0]
    return first if len(first) <= most else first[: most - 1] + "…"
