"""The address of every page of a full cluster, with what it can be asked."""

from __future__ import annotations

from urllib.parse import quote

from tests.console.full_cluster import HOSTILE_GROUP

PAGES = [
    "/",
    "/topics",
    "/topics?all=1&q=o",
    "/create-topic",
    "/topics/orders",
    "/topics/orders/settings",
    "/topics/orders/settings?q=retention&edit=retention.ms",
    "/topics/orders/messages",
    "/topics/orders/messages?from=oldest&partition=0&n=25",
    "/topics/orders/messages?from=offset&offset=5",
    "/topics/orders/messages?from=time&time=2020-01-01T00:00",
    "/topics/orders/messages?control=1&header=kind%3Drefund",
    "/topics/orders/message?partition=0&offset=1",
    "/topics/hostile/messages",
    *(f"/topics/hostile/message?partition=0&offset={offset}" for offset in range(5)),
    "/topics/hostile/send?partition=0&offset=0",
    "/topics/orders/tail",
    "/topics/orders/send",
    "/groups",
    "/groups?state=Empty&q=bill",
    "/groups/one?name=billing",
    f"/groups/one?name={quote(HOSTILE_GROUP)}",
    "/groups/reset?name=billing",
    "/groups/reset?name=billing&way=beginning",
    "/groups/reset?name=billing&way=shift&shift=-5&topic=orders",
    f"/groups/reset?name={quote(HOSTILE_GROUP)}&way=end",
    "/dead-letters",
    "/dead-letters/orders.billing.dead",
    "/dead-letters/orders.billing.dead?error=Timeout&settled=1",
    "/dead-letters/orders.billing.dead/letter?at=0/1",
    "/delayed",
    "/cluster",
]
