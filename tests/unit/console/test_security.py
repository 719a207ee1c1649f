"""Who is answered: names, origins, tokens; and what templates and scripts may not hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.console.notices import MOST_EACH, MOST_SESSIONS, Notice, Notices
from headrace.console.rendering import ASSETS, FOLDER, Renderer, link
from headrace.console.security.addresses import (
    is_loopback,
    our_names,
    refusal_of_host,
    refusal_of_origin,
)
from headrace.console.security.tokens import Tokens, is_session, new_session
from headrace.console.views.commands import Commands

TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
SCRIPTS = sorted(ASSETS.glob("*.js"))
LARGEST_ASSETS_BYTES = 300_000


@pytest.mark.parametrize("name", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_our_names_are_answered(name: str) -> None:
    assert refusal_of_host(name, our_names("localhost", 8080)) is None


@pytest.mark.parametrize(
    "name", [None, "", "evil.example:8080", "localhost", "localhost:8081", "localhost.evil:8080"]
)
def test_a_name_that_was_bound_to_us_by_others_is_refused(name: str | None) -> None:
    assert refusal_of_host(name, our_names("localhost", 8080))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "file://localhost:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8080"},
    ],
)
def test_a_change_from_a_page_of_others_is_refused(headers: dict[str, str]) -> None:
    assert refusal_of_origin(headers, our_names("localhost", 8080))


def test_a_change_from_our_own_page_is_taken() -> None:
    ours = {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}
    assert refusal_of_origin(ours, our_names("localhost", 8080)) is None


def test_only_this_machine_is_loopback() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_a_token_belongs_to_one_session_and_one_console() -> None:
    tokens, session = Tokens(b"a" * 32), new_session()
    assert tokens.accepts(session, tokens.token_of(session))
    assert not tokens.accepts(new_session(), tokens.token_of(session))
    assert not Tokens(b"b" * 32).accepts(session, tokens.token_of(session))
    assert not tokens.accepts(session, "ü")
    assert is_session(session) and not is_session("x") and not is_session(None)


def test_notices_are_told_once_and_are_bounded() -> None:
    notices = Notices()
    for number in range(MOST_SESSIONS + 9):
        for _ in range(MOST_EACH + 3):
            notices.put(str(number), Notice("done"))
    assert len(notices.take(str(MOST_SESSIONS + 8))) == MOST_EACH
    assert notices.take(str(MOST_SESSIONS + 8)) == []
    assert notices.take("0") == []


# ---- what would let foreign text run


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_marks_nothing_as_safe_and_has_no_inline_code(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape|Markup", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "://" not in text, "nothing is loaded from elsewhere"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_writes_text_and_never_html(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"new Function|https?://|import\(", text)


def test_assets_are_small() -> None:
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < LARGEST_ASSETS_BYTES


def test_what_is_put_into_a_page_is_escaped() -> None:
    html = Renderer().render(
        "failure.html",
        title="<b>",
        section="",
        sentence='<script>"\x1b',
        status_code=400,
        is_read=True,
        bootstrap="x",
        version="1",
        token="t",
        notices=[],
        theme="auto",
        read_only=False,
        here='/"><script>',
    )
    assert "<script>" not in html.replace('<script type="module"', "")
    assert "&lt;script&gt;&#34;\\x1b" in html


def test_a_link_quotes_whatever_a_name_holds() -> None:
    assert link("topics", "a/../b?#") == "/topics/a%2F..%2Fb%3F%23"
    assert link("groups", "one", name='"&<', page=None) == "/groups/one?name=%22%26%3C"
    assert link("topics", "t", "messages", partition=0) == "/topics/t/messages?partition=0"


def test_a_command_can_be_pasted_whatever_a_name_holds() -> None:
    commands = Commands("localhost:9092")
    assert commands.describe_topic("orders") == "headrace topics describe orders"
    assert commands.describe_group("a b; rm -rf $HOME") == (
        "headrace groups describe 'a b; rm -rf $HOME'"
    )
    assert "\x1b" not in commands.describe_group("\x1b[2J")
    assert Commands("kafka:1").list_topics() == "headrace topics list -b kafka:1"
    assert commands.produce("t", "a\nb") == "printf %s ... | headrace produce t"
