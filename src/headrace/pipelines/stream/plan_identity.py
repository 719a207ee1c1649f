"""What a stream computes, as text that stays the same from run to run, and what a change means.

Spark's checkpoint holds offsets and state, not the function. A function that was changed would go
on with state that another one made: a sum of 12 would go on as a maximum. So the analysed plan of
the function is kept beside the checkpoint, from the rows that it was given on (how values become
rows is ours, and may change with a version of Headrace), without the numbers that Spark gives to
expressions. Two kinds of change:

- State: operators that keep it, with their keys, windows and aggregates, followed through renamed
  and computed columns down to the columns of the source; watermarks; the key of the sink. Refused.
- Everything else: filters, columns without state, rules, the code of Python functions. Spark can
  carry on, with other results from here on. Named, and accepted only on request.

Knows no Spark; `spark/plan_reader.py` reads the operators.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.pipelines.declaration import Jdbc, Pipeline, Table, Topic
from headrace.pipelines.spark.shape import ROW_BY_ROW

# An attribute's number, and the mark of a column of 64 bits.
ID = re.compile(r"#(\d+)L?")
ALIAS = re.compile(r"(?s)(.*) AS (.+)#(\d+)L?(?:-T\d+ms)?$")
# What differs from run to run although the function does not.
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
SEED = re.compile(r"\b(rand|randn|Some)\(-?\d{10,}\)")
LAMBDA = re.compile(r"\blambda ([A-Za-z]+_)(\d+)\b")
ADDRESS = re.compile(r"\$\$?Lambda[^\s,)\]]*|@[0-9a-f]{5,16}\b")
# A window of time, which Spark writes out as arithmetic over microseconds.
TIME_OF_WINDOW = re.compile(r"precisetimestampconversion\((.*?), TimestampType, LongType\)")
NUMBER = re.compile(r"(?<![#\w-])\d+(?!\w)|\d+ (?:years?|months?|days?|hours?|minutes?|seconds?)")
# `isin` of a set comes in the order of Python's hashes.
LISTED = " IN ("
WATERMARK = "EventTimeWatermark"
# Names for a plan, without meaning for its rows.
LEFT_OUT = ("SubqueryAlias", "View", "ResolvedHint")
# Their state is made by their expressions alone; the text of others says more.
BY_EXPRESSIONS = ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct")
# A line about a Python function: its name and its fingerprint.
CODE = re.compile(r"\s*code of (.*) = \w+$")
MOST_NAMED, MOST_TEXT = 4, 160
# Left out for people, where it is not what differs: `rows.amount:bigint`, the delay of a watermark.
READABLE, WATERMARKED = re.compile(r"\brows\.(\w+):\w+"), re.compile(r"-T\d+ms")


@dataclass(slots=True)
class Operator:
    """An operator of an analysed plan, as Spark writes it. `rows` are the ids, names and types of
    the columns of a leaf, `code` its Python functions as `NAME = FINGERPRINT`. `is_source` is
    what the function was given."""

    name: str
    text: str
    streams: bool = True
    is_source: bool = False
    expressions: list[str] = field(default_factory=list)
    rows: list[tuple[int, str, str]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    children: list[Operator] = field(default_factory=list)

    @property
    def keeps_state(self) -> bool:
        if not self.streams or self.is_source:
            return False
        if self.name == "Join":
            return all(child.streams for child in self.children)
        return self.name not in ROW_BY_ROW


@dataclass(slots=True, kw_only=True)
class PlanIdentity:
    """What is kept of a stream's function; lists of texts. `code` is the whole function's."""

    spark: str
    python: str
    code: str
    state: list[str]
    steps: list[str]
    columns: list[str]
    rules: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, kept: object) -> PlanIdentity | None:
        """None if it is not one of this form: an older version kept none."""
        names = cls.__dataclass_fields__
        if not isinstance(kept, dict) or not names.keys() <= kept.keys():
            return None
        return cls(**{name: kept[name] for name in names})


@dataclass(slots=True)
class PlanChange:
    """A change of the function. `named` is for people; with a change `of_state` the stream cannot
    continue."""

    named: list[str]
    of_state: bool

    @property
    def shown(self) -> str:
        more = len(self.named) - MOST_NAMED
        return "; ".join(self.named[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def identity_of(
    pipeline: Pipeline, plan: Operator, columns: list[str], *, spark: str, python: str, code: str
) -> PlanIdentity:
    state = list(_state(plan, _definitions(plan)))
    return PlanIdentity(
        spark=spark,
        python=python,
        code=code,
        state=_declared_state(pipeline, keeps=bool(state)) + state,
        steps=_steps(plan),
        columns=[normalized(one) for one in columns],
        rules=_declared_rules(pipeline),
    )


def change(before: PlanIdentity, now: PlanIdentity) -> PlanChange | None:
    """None: the same function, as far as can be seen. Texts of different versions of Spark are not
    comparable; there the code of the function decides."""
    if _minor(before.spark) != _minor(now.spark) and before.steps + before.state != (
        now.steps + now.state
    ):
        if before.python != now.python or before.code == now.code:
            return None
        both = (
            f"the function, and Spark from {before.spark} to {now.spark} at the same time (change "
            "one of them, run it once, then the other)"
        )
        return PlanChange([both], of_state=_keeps(before) or _keeps(now))
    code_counts = before.python == now.python
    kept, made = (_without_code(one, code_counts) for one in (before, now))
    if kept.state != made.state:
        named = _named(kept.state, made.state) or ["the columns that its state is made of"]
        return PlanChange(named, of_state=True)
    named = [f"column {one}" for one in _named(kept.columns, made.columns)]
    named += _named(kept.rules, made.rules) + _named(kept.steps, made.steps)
    if not named and kept.steps != made.steps:
        named = ["which of the columns with one name it uses"]
    return PlanChange(named, of_state=False) if named else None


def _keeps(one: PlanIdentity) -> bool:
    return bool(one.state)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _without_code(one: PlanIdentity, counts: bool) -> PlanIdentity:
    if counts:
        return one
    plain = one.as_dict()
    for name in ("state", "steps"):
        plain[name] = [line for line in plain[name] if not CODE.match(line)]
    return PlanIdentity(**plain)


def _named(before: list[str], now: list[str]) -> list[str]:
    """Returns what was removed and what was added, without numbers."""
    old, new = ([ID.sub("", one).strip() for one in lines] for lines in (before, now))
    named: list[str] = []
    matched = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for kind, a, b, c, d in matched.get_opcodes():
        gone, came = old[a:b], new[c:d]
        if kind == "equal":
            continue
        for one, other in zip(gone, came, strict=False):
            named.append(_code_of(one, other) or " is now ".join(_plain(one, other)))
        named += [f"{_short(_readable(one))} is gone" for one in gone[len(came) :]]
        named += [f"{_short(_readable(one))} is new" for one in came[len(gone) :]]
    return named


def _code_of(one: str, other: str) -> str | None:
    before, now = CODE.match(one), CODE.match(other)
    if before is None or now is None or before[1] != now[1]:
        return None
    return f"the code of {now[1]} is another"


def _plain(one: str, other: str) -> tuple[str, str]:
    """For people, as far as the two still differ then: where, if they are long."""
    if (shown := (_readable(one), _readable(other)))[0] == shown[1]:
        shown = (one, other)
    one, other = shown
    pairs = enumerate(zip(one, other, strict=False))
    first = next((place for place, (a, b) in pairs if a != b), 0)
    begin = max(0, first - MOST_TEXT // 2) if max(map(len, shown)) > MOST_TEXT else 0
    return _short(one, begin), _short(other, begin)


def _readable(text: str) -> str:
    return READABLE.sub(r"\1", WATERMARKED.sub("", text))


def _short(text: str, begin: int = 0) -> str:
    before = "..." if begin else ""
    cut = text[begin : begin + MOST_TEXT]
    return before + cut + ("..." if begin + MOST_TEXT < len(text) else "")


# ---- from operators to texts


def normalized(text: str) -> str:
    """Without what differs from run to run, but with the numbers of expressions."""
    text = UUID.sub("", text.removeprefix("~"))
    text = ADDRESS.sub("", SEED.sub(r"\1()", text))
    text = _with_plain_lambdas(text)
    return _with_plain_windows(_with_sorted_lists(text))


def _with_plain_lambdas(text: str) -> str:
    """Spark numbers the arguments of lambdas through the whole session: `x_1`, later `x_7`."""
    numbers: dict[str, int] = {}
    return LAMBDA.sub(
        lambda found: f"lambda {found[1]}{numbers.setdefault(found[2], len(numbers) + 1)}", text
    )


def _with_sorted_lists(text: str) -> str:
    at = text.find(LISTED)
    while at >= 0:
        begin, end = at + len(LISTED), _end_of_call(text, at)
        if end is None:
            break
        text = text[:begin] + ", ".join(sorted(_parts(text[begin : end - 1]))) + text[end - 1 :]
        at = text.find(LISTED, begin)
    return text


def _parts(listed: str) -> list[str]:
    """What commas separate that are not within parentheses."""
    parts, depth = [""], 0
    for letter in listed:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [one.strip() for one in parts]


def _with_plain_windows(text: str) -> str:
    """`window(TIME, SIZES)` in place of the arithmetic, which would fill a screen."""
    begin = "named_struct(start, "
    at = text.find(begin)
    while at >= 0:
        end = _end_of_call(text, at)
        whole = text[at:end]
        if end is not None and (time := TIME_OF_WINDOW.search(whole)) is not None:
            of = time[1].rpartition("precisetimestampconversion(")[2]
            sizes = dict.fromkeys(NUMBER.findall(whole.replace(of, "")))
            plain = f"window({of}, {', '.join(sizes)})"
            text = text[:at] + plain + text[end:]
        at = text.find(begin, at + 1)
    return text


def _end_of_call(text: str, at: int) -> int | None:
    """Behind the parenthesis that closes the first one after `at`; None if none does, as a text
    within may have one."""
    depth = 0
    for place in range(text.index("(", at), len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return None


def _steps(plan: Operator) -> list[str]:
    """Each operator in a line, the last step first; numbers by their first use."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"#{numbers.setdefault(found[1], len(numbers))}"

    return [ID.sub(number, line) for line in _step_lines(plan, 0)]


def _step_lines(plan: Operator, depth: int) -> Iterator[str]:
    if plan.is_source:
        yield " " * depth + "Rows"
        return
    if plan.name in LEFT_OUT:
        depth -= 1
    else:
        if plan.rows:  # what is read beside the stream; its version is not ours
            shown = ", ".join(f"{name} {kind}" for _, name, kind in plan.rows)
            yield " " * depth + f"{plan.name} [{shown}]"
        else:
            yield " " * depth + normalized(plan.text)
        yield from (" " * depth + f" code of {one}" for one in plan.code)
    for child in plan.children:
        yield from _step_lines(child, depth + 1)


def _definitions(plan: Operator) -> dict[int, tuple[str, str]]:
    """The name and the text of each column that is made below, by its number: leaves first."""
    known: dict[int, tuple[str, str]] = {}
    for one in _leaves_first(plan):
        for number, name, kind in one.rows:
            origin = "rows" if one.is_source else one.name
            known[number] = (name, f"{origin}.{name}:{kind}")
        for text in one.expressions:
            if (made := ALIAS.match(normalized(text))) is not None:
                known[int(made[3])] = (made[2], _resolved(made[1], known))
    return known


def _leaves_first(plan: Operator) -> Iterator[Operator]:
    for child in plan.children:
        yield from _leaves_first(child)
    yield plan


def _resolved(text: str, known: dict[int, tuple[str, str]]) -> str:
    """Columns by what they are made of: another name for one of them changes nothing."""
    for number in sorted({int(found) for found in ID.findall(text)}, reverse=True):
        name, definition = known.get(number, ("", ""))
        text = re.sub(f"{re.escape(name)}#{number}L?(?!\\d)", lambda _: definition, text)  # noqa: B023
    return text


def _state(plan: Operator, known: dict[int, tuple[str, str]]) -> Iterator[str]:
    stateful = any(one.keeps_state for one in _leaves_first(plan))
    for one in _leaves_first(plan):
        if one.keeps_state and one.name in BY_EXPRESSIONS:
            made = [ALIAS.sub(r"\1", normalized(text)) for text in one.expressions]
            yield one.name
            # Keys come again among the columns of the result.
            yield from dict.fromkeys(f" {_resolved(text, known)}" for text in made)
        elif one.keeps_state or (stateful and one.name == WATERMARK and not one.is_source):
            yield _resolved(normalized(one.text), known)
            yield from (f" code of {code}" for code in one.code)


# ---- what the declaration says


def _declared_state(pipeline: Pipeline, *, keeps: bool) -> list[str]:
    source, sink = pipeline.source, pipeline.sink
    found = []
    if isinstance(sink, Table | Jdbc) and sink.upserts:
        found.append(f"the key of {sink.name} ({', '.join(sink.keys)})")
    if keeps and source.event_time is not None:
        found.append(f"the watermark ({source.event_time}, late {source.late})")
    if keeps and isinstance(source, Topic):
        found.append(f"values (format {source.format}, times in {source.unit})")
    return found


def _declared_rules(pipeline: Pipeline) -> list[str]:
    source, sink = pipeline.source, pipeline.sink
    found = []
    if isinstance(source, Topic):
        found.append(f"values (format {source.format}, times in {source.unit})")
        found += [f"the rule {one.rule} ({one.then})" for one in source.expect]
    if isinstance(sink, Table) and sink.partition_by:
        found.append(f"the partitions of {sink.name} ({', '.join(sink.partition_by)})")
    if sink.newest is not None:
        found.append(f"newest={sink.newest}")
    if isinstance(sink, Topic):
        written = "when it is final" if sink.final else "each time it changes"
        found.append(f"a row of {sink.name} (by {sink.key}, {written})")
    return found
