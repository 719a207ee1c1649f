"""Who may ask our HTTP servers, by Host, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import pytest

from headrace.edge.browser_guard import (
    AllowedOrigins,
    is_answered,
    is_loopback_name,
    is_of_foreign_site,
    is_page_of,
)
from headrace.edge.host_names import is_loopback, our_names


def test_only_this_machine_is_loopback() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_names_are_ours_with_their_port_in_any_case() -> None:
    names = our_names("localhost", 8080, ["2001:DB8::7"])
    for said in ("localhost:8080", "LOCALHOST:8080", "[::1]:8080", "[2001:db8::7]:8080"):
        assert is_answered(said, names)
    for said in ("localhost", "localhost:8081", "rebound.example:8080", "", None):
        assert not is_answered(said, names)
    assert is_answered("rebound.example", None) and is_answered(None, None)


@pytest.mark.parametrize("said", ["localhost", "LocalHost:1", "127.0.0.1:9095", "[::1]", "[::1]:9"])
def test_a_name_of_this_machine_counts_at_any_port(said: str) -> None:
    assert is_loopback_name(said)


@pytest.mark.parametrize("said", [None, "", "::1", "evil.example", "localhost.evil.example:9095"])
def test_other_names_do_not_count(said: str | None) -> None:
    assert not is_loopback_name(said)


def test_a_page_is_ours_if_one_of_our_names_sent_it() -> None:
    names = our_names("localhost", 8080)
    assert is_page_of("http://localhost:8080", names) and is_page_of("HTTPS://[::1]:8080", names)
    for origin in ("null", "", "http://localhost", "ftp://localhost:8080", "http://evil.example"):
        assert not is_page_of(origin, names)


def test_the_browsers_word_about_the_site_is_believed() -> None:
    assert not any(map(is_of_foreign_site, ({}, OWN_SITE, {"Sec-Fetch-Site": "none"})))
    for site in ("cross-site", "same-site", ""):
        assert is_of_foreign_site({"Sec-Fetch-Site": site})


OWN_SITE = {"Sec-Fetch-Site": "same-origin"}


def allowed(*origins: str, shown: str | None = None) -> AllowedOrigins:
    return AllowedOrigins(
        origins, methods="POST", request_headers="Content-Type", shown_headers=shown, preflight_s=60
    )


def test_pages_of_allowed_origins_read_answers_and_no_others() -> None:
    shop = allowed("https://Shop.example/", shown="Retry-After")
    assert shop and not allowed()
    assert shop.headers_of("https://shop.example") == {
        "Access-Control-Allow-Origin": "https://shop.example",
        "Access-Control-Expose-Headers": "Retry-After",
        "Vary": "Origin",
    }
    for origin in (None, "https://evil.example", "http://shop.example"):
        assert shop.headers_of(origin) == {} == shop.preflight(origin)
    assert shop.preflight("https://shop.example")["Access-Control-Max-Age"] == "60"


def test_a_star_allows_every_origin_by_its_own_name() -> None:
    answer = allowed("*").headers_of("https://anywhere.example")
    assert answer["Access-Control-Allow-Origin"] == "https://anywhere.example"
    assert "Access-Control-Expose-Headers" not in answer
