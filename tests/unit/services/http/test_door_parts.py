"""Routes, guard, credentials, instances and the budget, each by itself."""

from __future__ import annotations

import base64
import json

import pytest

from headrace.services.http.budget import Budget, Lease
from headrace.services.http.consumers.instance_registry import InstanceRegistry
from headrace.services.http.guard import Guard
from headrace.services.http.refusal import Refusal
from headrace.services.http.routes import match
from headrace.services.http.users.credentials import Basic, Bearer, read_credentials


def refused(status: int, call: object, *args: object) -> Refusal:
    with pytest.raises(Refusal) as raised:
        call(*args)  # type: ignore[operator]
    assert raised.value.status == status
    return raised.value


def test_paths_lead_to_endpoints_and_names_are_decoded() -> None:
    route, params = match("GET", "/topics/a%20b/partitions/7")
    assert route.endpoint == "partition" and params == {"topic": "a b", "partition": "7"}
    assert match("POST", "/consumers/g/")[0].endpoint == "create_instance"
    assert match("GET", "/")[0].endpoint == "page"
    for path in ("/nothing", "/topics//partitions", "/topics/{}/x", "/{}", "/topics/ GET"):
        refused(404, match, "GET", path)
    assert "GET or POST" in refused(405, match, "PUT", "/topics/a").message
    refused(400, match, "GET", "http://elsewhere/topics")
    refused(400, match, "GET", "/topics/%ff")


def test_only_our_names_and_our_own_pages_are_answered() -> None:
    guard = Guard(frozenset({"localhost:8082"}), ["https://shop.example"])
    guard.check({"Host": "localhost:8082"})
    guard.check({"Host": "LOCALHOST:8082", "Origin": "http://localhost:8082"})
    guard.check({"Host": "localhost:8082", "Origin": "https://shop.example"})
    refused(421, guard.check, {"Host": "rebound.example:8082"})
    refused(421, guard.check, {})
    for headers in ({"Origin": "null"}, {"Origin": "https://evil.example"}, CROSS_SITE):
        refused(403, guard.check, {"Host": "localhost:8082", **headers})
    assert guard.cors("https://evil.example") == {} == guard.preflight(None)
    assert guard.preflight("https://shop.example")["Access-Control-Allow-Methods"]


CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}


def test_logins_are_read_and_never_repeated() -> None:
    said = base64.b64encode("ann:p:w é".encode()).decode()
    assert read_credentials(f"Basic {said}") == Basic("ann", "p:w é")
    assert "p:w" not in repr(read_credentials(f"basic {said}"))
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "bo", "exp": 9}).encode()).decode()
    token = f"e30.{claims.rstrip('=')}.sig"
    assert read_credentials(f"Bearer {token}") == Bearer("bo", token, 9.0)
    for bad in (None, "", "Basic", "Basic ???", "Basic YQ==", "Digest x", "Bearer ", "Bearer é"):
        refusal = refused(401, read_credentials, bad)
        assert "???" not in refusal.message


def test_instances_are_bounded_owned_and_end_when_idle() -> None:
    registry: InstanceRegistry[str] = InstanceRegistry("door", most=2, idle_s=300)
    assert registry.add("g", "a", "ann", lambda: "A", 0.0) == "a"
    assert refused(409, registry.add, "g", "a", "ann", lambda: "A", 0.0).code == 40902
    assert registry.add("g", None, "ann", lambda: "B", 0.0) == "door-1"
    assert refused(429, registry.add, "g", "c", "ann", lambda: "C", 0.0).retry_after_s
    assert refused(404, registry.enter, "g", "a", "bo", 1.0).code == 40403
    assert registry.enter("g", "a", "ann", 200.0) == "A"
    assert registry.expired(600.0) == ["B"]  # the other one is in use
    registry.leave("g", "a", "ann", 700.0)
    assert registry.expired(999.0) == [] and registry.expired(1000.0) == ["A"]


def test_the_budget_refuses_what_does_not_fit_and_gets_all_back() -> None:
    budget = Budget(requests=1, size_bytes=100)
    budget.enter()
    assert refused(429, budget.enter).retry_after_s == 1
    lease = Lease(budget)
    lease.grow_to(60)
    lease.grow_to(40)
    refused(429, lease.grow_to, 101)
    lease.end()
    budget.leave()
    assert (budget.bytes, budget.requests, budget.refused) == (0, 0, 2)
