"""The `headrace-` headers have one owner and one page, and the code uses no other.

What the code says is found in its syntax: a text that looks like a header and is no name of a
thread, a group, a folder and the like must be in `wire/contract/headers.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.wire.contract import headers

PROJECT = Path(__file__).resolve().parents[4]
PACKAGE = PROJECT / "src" / "headrace"
OWNER = PACKAGE / "wire" / "contract" / "headers.py"
PAGE = PROJECT / "docs" / "guide" / "headers.md"
LOOKS_LIKE_ONE = re.compile(r"headrace(-[a-z]+)+-?")
ROW = re.compile(r"^\| `(headrace-[a-z-]+)` \|(.*)\|$", re.M)
COLUMNS = 4  # who writes it, who reads it, its value, an example

# Arguments and settings whose values are other names than those of headers.
NAME_SOMETHING_ELSE = {"name", "thread_name_prefix", "prefix", "group_id", "group.id", "client.id"}
# Other names that look like one: of folders, groups, users, topics, cookies, servers, commits.
OTHERS = {
    "headrace-app",
    "headrace-batch",
    "headrace-console",
    "headrace-data",
    "headrace-http-keys",
    "headrace-key",
    "headrace-metrics",
    "headrace-nodes",
    "headrace-outbox",
    "headrace-pipelines",
    "headrace-security",
    "headrace-ship",
    "headrace-signature",  # a header of HTTP
    "headrace-stream",
    "headrace-theme",
    "headrace-without-group",
}
# The name of a header, and elsewhere that of a folder, a user, a group.
ALSO_SOMETHING_ELSE = {"headrace-delay"}
# The beginning of some headers, where misspelt ones are refused.
BEGINNINGS = {
    "wire/contract/delay_instructions.py": {
        "headrace-delay",
        "headrace-deliver",
        "headrace-cron",
        "headrace-cancel",
    }
}


def known() -> set[str]:
    prefixes = {headers.PREFIX, headers.DEAD_PREFIX}
    texts = {value for name, value in vars(headers).items() if name.isupper()
             and isinstance(value, str) and value.startswith(headers.PREFIX)}  # fmt: skip
    return texts - prefixes


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Texts that look like a header, without those that name something else."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in NAME_SOMETHING_ELSE:
            skipped.add(id(node.value))
        if isinstance(node, ast.Call) and called(node)[:1].isupper():
            skipped |= {id(given) for given in node.args}  # what is made gets a name: Thread(...)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            skipped |= {
                id(value)
                for key, value in pairs
                if isinstance(key, ast.Constant) and key.value in NAME_SOMETHING_ELSE
            }
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            text = (
                node.value.decode("ascii", "replace")
                if isinstance(node.value, bytes)
                else node.value
            )
            if isinstance(text, str) and LOOKS_LIKE_ONE.fullmatch(text):
                yield text


def called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def test_no_other_file_writes_the_name_of_a_header() -> None:
    for path in PACKAGE.rglob("*.py"):
        if (
            path == OWNER
            or path.parent.name == "messages"
            or "headrace-" not in path.read_text("utf-8")
        ):
            continue
        name = path.relative_to(PACKAGE).as_posix()
        found = set(texts_of(ast.parse(path.read_text("utf-8"))))
        strange = found - OTHERS - ALSO_SOMETHING_ELSE - BEGINNINGS.get(name, set())
        assert not strange, f"{name}: a header belongs into wire/contract/headers.py: {strange}"


def test_the_page_has_every_header_once_with_all_that_is_to_say() -> None:
    rows = ROW.findall(PAGE.read_text("utf-8"))
    names = [name for name, _ in rows]
    assert sorted(names) == sorted(known())
    for name, rest in rows:
        cells = [cell.strip() for cell in rest.split("|")]
        assert len(cells) == COLUMNS and all(cells), name


def test_every_header_has_one_name_in_the_code() -> None:
    tree = ast.parse(OWNER.read_text("utf-8"))
    given = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    assert len(given) == len(set(given))


def test_a_new_text_is_found() -> None:
    """The search itself: names of threads and settings are left out, bytes and tuples are not."""
    source = """
        Thread(name="headrace-thread")
        Pages("headrace-pages")
        message.header("headrace-asked")
        {"group.id": "headrace-group", "headrace-new": 1}
        [(b"headrace-raw", b""), "headrace-plain", f"headrace-{x}"]
    """
    import textwrap

    found = set(texts_of(ast.parse(textwrap.dedent(source))))
    assert found == {"headrace-new", "headrace-raw", "headrace-plain", "headrace-asked"}
