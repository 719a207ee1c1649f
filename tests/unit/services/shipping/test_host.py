"""This machine as psutil reads it, where psutil cannot read all of it."""

import psutil

from headrace.services.shipping import host


def test_a_part_that_cannot_be_read_costs_no_other(monkeypatch):
    def hidden():
        raise PermissionError(13, "Permission denied", "/proc/vmstat")

    monkeypatch.setattr(psutil, "swap_memory", hidden)
    found = host.read()
    assert "cpu_percent" in found.busy and "network_sent_bytes_per_s" in found.counters
    assert "memory_percent" not in found.gauges
    assert "Permission denied" in found.unread["memory"]
