"""What a process and the machine have used, read from /proc.

Processor time is user + system time in clock ticks (10 ms), so measure for seconds, not for
milliseconds. Children that ended are in their parent's numbers; live ones are added by walking.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the command, which may itself hold blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def processor_seconds(pid: int) -> float:
    """User and system time of a process, its ended children and its living ones."""
    utime, stime, cutime, cstime = (int(field) for field in stat_fields(pid)[11:15])
    own = (utime + stime + cutime + cstime) / TICKS_PER_SECOND
    for child in children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
            own += processor_seconds(child)
    return own


@dataclass(slots=True)
class Memory:
    resident_mb: float
    peak_mb: float


def memory(pid: int) -> Memory:
    """VmRSS and VmHWM of a process in MB (10^6 bytes)."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    kib = {name: int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM")}
    return Memory(kib["VmRSS"] * 1024 / 1e6, kib["VmHWM"] * 1024 / 1e6)


def machine_busy_seconds() -> float:
    """Processor time of everything on the machine since boot, time stolen by the host included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def own_processor_seconds() -> float:
    times = os.times()
    return times.user + times.system


def describe_machine() -> dict[str, str]:
    """The machine as a reader of the results needs to know it."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gb:.0f} GB",
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "java": java_version(),
    }


def java_version() -> str:
    try:
        answer = subprocess.run(
            ["java", "-version"], capture_output=True, text=True, check=True
        ).stderr
    except FileNotFoundError:
        return "none"
    return answer.splitlines()[0].strip()


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; brokers started later inherit it."""
    import resource

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
