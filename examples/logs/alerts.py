"""Alerts by rules of one's own: `headrace pipeline run alerts.py:shop-alerts`."""

from headrace.pipelines.shipped.logs import Rule, alerts

shop_alerts = alerts(
    "shop-alerts",
    [
        Rule(name="cards-refused", contains="card .* refused", at_least=2),
        Rule(name="fatal", level="FATAL"),
    ],
)
