"""This machine, read by psutil: processors, memory, disks, network, load, chosen processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import psutil

from headrace.services.shipping.numbers import Reading
from headrace.wire.contract.metrics import series

# Mounts of containers and images are many and say nothing of the machine.
MOST_MOUNTS = 50
NO_DISKS = frozenset({"squashfs", "overlay", "tmpfs", "devtmpfs", "iso9660", "autofs"})


def read(processes: Sequence[str] = ()) -> Reading:
    """`processes` are names; all processes of a name are counted together."""
    found = Reading(time.monotonic())
    for name, part in PARTS.items():
        try:
            part(found, frozenset(processes))
        except (OSError, RuntimeError, ValueError, psutil.Error) as failure:
            # As in a container that hides a part of /proc: the other numbers are as good as before.
            found.unread[name] = str(failure) or type(failure).__name__
    return found


def _processors(found: Reading, names: frozenset[str]) -> None:
    times = psutil.cpu_times()._asdict()
    guests = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # in user and nice already
    found.total_s = sum(times.values()) - guests
    idle = times["idle"] + times.get("iowait", 0.0)
    found.busy["cpu_percent"] = found.total_s - idle
    if "iowait" in times:
        found.busy["cpu_iowait_percent"] = times["iowait"]
    if "steal" in times:
        found.busy["cpu_steal_percent"] = times["steal"]
    found.gauges["cpu_count"] = psutil.cpu_count() or 0
    for minutes, value in zip((1, 5, 15), os.getloadavg(), strict=True):
        found.gauges[f"load_{minutes}m"] = round(value, 2)


def _memory(found: Reading, names: frozenset[str]) -> None:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    found.gauges |= {
        "memory_percent": memory.percent,
        "memory_used_bytes": memory.used,
        "memory_available_bytes": memory.available,
        "swap_percent": swap.percent,
    }


def _disks(found: Reading, names: frozenset[str]) -> None:
    mounts = [one for one in psutil.disk_partitions() if one.fstype not in NO_DISKS]
    for mount in mounts[:MOST_MOUNTS] or [None]:
        mount_point = "/" if mount is None else mount.mountpoint
        try:
            usage = psutil.disk_usage(mount_point)
        except OSError:  # unmounted meanwhile, or not ours to see
            continue
        found.gauges[series("disk_used_percent", {"mount": mount_point})] = usage.percent
        found.gauges[series("disk_free_bytes", {"mount": mount_point})] = usage.free
    if (moved := psutil.disk_io_counters()) is not None:
        found.counters["disk_read_bytes_per_s"] = moved.read_bytes
        found.counters["disk_written_bytes_per_s"] = moved.write_bytes


def _network(found: Reading, names: frozenset[str]) -> None:
    moved = psutil.net_io_counters()
    if moved is not None:
        found.counters |= {
            "network_received_bytes_per_s": moved.bytes_recv,
            "network_sent_bytes_per_s": moved.bytes_sent,
            "network_errors_per_s": moved.errin + moved.errout + moved.dropin + moved.dropout,
        }


def _processes(found: Reading, names: frozenset[str]) -> None:
    if not names:
        return
    counts = dict.fromkeys(names, 0)
    memory = dict.fromkeys(names, 0)
    for one in psutil.process_iter(["name", "cpu_times", "memory_info"]):
        name = one.info["name"]
        if name not in names or one.info["cpu_times"] is None:
            continue
        spent = one.info["cpu_times"]
        found.processes[name, one.pid] = spent.user + spent.system
        counts[name] += 1
        memory[name] += one.info["memory_info"].rss if one.info["memory_info"] else 0
    for name in names:
        found.gauges[series("process_count", {"process": name})] = counts[name]
        found.gauges[series("process_memory_bytes", {"process": name})] = memory[name]


Part = Callable[[Reading, frozenset[str]], None]
PARTS: dict[str, Part] = {
    "processors": _processors,
    "memory": _memory,
    "disks": _disks,
    "network": _network,
    "processes": _processes,
}
