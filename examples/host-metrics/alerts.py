"""Alerts by rules of one's own: `headrace pipeline run alerts.py:my-alerts`."""

from headrace.pipelines.shipped.host_metrics import Above, alerts

my_alerts = alerts(
    "my-alerts",
    above=[Above("cpu-busy", "cpu_percent", 80.0, lasts=2)],
    silent_minutes=2,
)
