"""Who is answered: names, origins, tokens; and what templates and scripts may not hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from headrace.client.connection import ClientSettings
from headrace.console import audit
from headrace.console.access.cluster_access import ClusterAccess
from headrace.console.audit import Audit
from headrace.console.console import ShownCluster
from headrace.console.notices import MOST_EACH, MOST_SESSIONS, Notice, Notices
from headrace.console.pages import login
from headrace.console.renderer import ASSETS, FOLDER, Renderer, link
from headrace.console.security.addresses import (
    refusal_of_host,
    refusal_of_origin,
)
from headrace.console.security.logins import (
    IDLE_S,
    LONGEST_S,
    MOST_IN_ALL,
    MOST_OF_A_NAME,
    MOST_OF_AN_ADDRESS,
    MOST_OF_ONE,
    MOST_PEOPLE,
    WINDOW_S,
    LoginLimits,
    People,
    Person,
)
from headrace.console.security.tokens import Tokens, is_session, new_session
from headrace.console.views.commands import Commands
from headrace.edge.host_names import our_names

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
        answers=None,
        version="1",
        token="t",
        notices=[],
        theme="auto",
        read_only=False,
        person="<i>",
        asks_logins=True,
        here='/"><script>',
        cluster_name="<u>",
        clusters=(ShownCluster("<u>", "/c/%3Cu%3E/", "<s>"),),
    )
    assert "<script>" not in html.replace('<script type="module"', "")
    assert "&lt;script&gt;&#34;\\x1b" in html
    assert "<u>" not in html and "<s>" not in html


def test_a_console_for_everybody_answers_only_by_the_names_it_was_given() -> None:
    names = our_names("0.0.0.0", 443, ["Console.example.com", "2001:db8::7"], tls=True)
    assert refusal_of_host("console.example.com", names) is None
    assert refusal_of_host("[2001:db8::7]:443", names) is None
    assert refusal_of_host("0.0.0.0:443", names) is not None
    assert refusal_of_host("evil.example:443", names) is not None


def test_sessions_end_by_themselves_and_are_bounded() -> None:
    people, access = People(), cast(ClusterAccess, None)
    for number in range(MOST_PEOPLE):
        assert people.begin(f"s{number}", Person(f"p{number}", access, number, number)) == []
    assert people.of("s0", 100) is not None  # seen again, so s1 is the longest idle now
    [gone] = people.begin("new", Person("new", access, 101, 101))
    assert gone.name == "p1" and people.of("s1", 102) is None
    assert people.of("s0", 100 + IDLE_S + 1) is None
    last_s = 100.0
    while last_s <= LONGEST_S + 101:
        last_s += IDLE_S
        known = people.of("new", last_s)
    assert known is None, "nobody stays for ever, however often they come"
    assert len(people.sweep(LONGEST_S * 3)) == MOST_PEOPLE and len(people) == 0
    assert people.of(None, 0) is None and people.end("never") is None


def test_whoever_logs_in_again_and_again_ends_their_own_sessions() -> None:
    people, access = People(), cast(ClusterAccess, None)
    people.begin("other", Person("bob", access, 0, 0))
    for number in range(MOST_OF_ONE):
        assert people.begin(f"s{number}", Person("ann", access, number, number)) == []
    for number in range(MOST_PEOPLE * 2):
        [gone] = people.begin(f"more{number}", Person("ann", access, 50, 50))
        assert gone.name == "ann"
    assert people.of("other", 60) is not None and len(people) == MOST_OF_ONE + 1


def test_guessing_is_slow_by_name_by_address_and_in_all() -> None:
    limits = LoginLimits()
    for number in range(MOST_OF_A_NAME):
        assert limits.wait_s("ann", "10.0.0.9", number) == 0
        limits.failed("ann", f"10.0.0.{number}", number)
    assert limits.wait_s("ann", "10.9.9.9", MOST_OF_A_NAME) == WINDOW_S - MOST_OF_A_NAME
    assert limits.wait_s("bob", "10.9.9.9", MOST_OF_A_NAME) == 0
    assert limits.wait_s("ann", "10.9.9.9", WINDOW_S + MOST_OF_A_NAME) == 0
    limits.succeeded("ann", "10.0.0.0", 0)
    assert limits.wait_s("ann", "10.9.9.9", MOST_OF_A_NAME) == 0
    for number in range(MOST_OF_AN_ADDRESS):
        limits.failed(f"user{number}", "10.1.1.1", 50)
    assert limits.wait_s("somebody", "10.1.1.1", 51) > 0
    assert limits.wait_s("somebody", "10.1.1.2", 51) == 0


def test_logins_that_succeed_hold_up_nobody_at_the_same_address() -> None:
    """A proxy has one address for all. Each attempt is counted before its outcome is known."""
    limits = LoginLimits()
    for number in range(MOST_IN_ALL):
        assert limits.wait_s(f"user{number}", "10.0.0.1", 7) == 0, number
        limits.failed(f"user{number}", "10.0.0.1", 7)
        limits.succeeded(f"user{number}", "10.0.0.1", 7)
    for number in range(MOST_OF_AN_ADDRESS):
        limits.failed(f"guess{number}", "10.0.0.1", 8)
    limits.succeeded("ann", "10.0.0.1", 9)  # it was counted, and pushed out by later ones
    assert limits.wait_s("ann", "10.0.0.1", 9) > 0, "guesses are not forgiven for that"


def test_the_audit_is_kept_bounded_and_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LARGEST_FILE_BYTES", 2_000)
    kept = Audit(lambda: 7, tmp_path / "new")
    for number in range(30):
        kept.note(
            "ann", "::1", "/topics/x/delete", f"{number}\n" + "x" * 900, done=True, cluster="c1"
        )
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1"]
    assert all(path.stat().st_size < 4_000 for path in (tmp_path / "new").iterdir())
    for _ in range(90):
        kept.note("m" * 9_000, "::1", "/login", "Login failed.", done=False, cluster="c1")
    assert "29" in (tmp_path / "new" / "audit.jsonl").read_text(), "failed logins push nothing out"
    assert (tmp_path / "new" / "audit.jsonl").stat().st_mode & 0o077 == 0
    (tmp_path / "new" / "audit.jsonl").open("a").write("no line of ours\n{}\n")
    again = Audit(lambda: 8, tmp_path / "new")
    assert again.recent[-1].what.startswith("29\n") and len(again.recent[-1].what) == 500
    nowhere = Audit(lambda: 9, Path("/dev/null/x"))
    nowhere.note("ann", "", "/", "done all the same", done=True, cluster="c1")
    assert "cannot be written" in nowhere.problem


@pytest.mark.parametrize(
    "to", ["//evil.example", "/\\evil.example", "https://evil.example", "x", "/a\nb"]
)
def test_a_login_leads_to_our_own_pages_only(to: str) -> None:
    assert login._local(to) == "/"
    assert login._local("/topics?q=a") == "/topics?q=a"


def test_a_person_gets_nothing_of_the_consoles_own_login() -> None:
    own = ClientSettings({"sasl.username": "sampler", "sasl.password": "s", "ssl.key.location": "k",
                      "bootstrap.servers": "b:1", "security.protocol": "sasl_ssl"})  # fmt: skip
    at = login.personal(own, "ann", "secret")
    assert at.settings["sasl.username"] == "ann" and "ssl.key.location" not in at.settings
    assert "secret" not in repr(at) and at.settings["security.protocol"] == "sasl_ssl"


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
