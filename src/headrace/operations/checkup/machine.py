"""Checks whether this machine can run a node: Python, packages, open files, disk, tools."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from importlib import metadata
from pathlib import Path

from headrace.operations.checkup.finding import Finding, good, watch, wrong
from headrace.operations.checkup.kcat import check_kcat
from headrace.operations.checkup.spark import check_spark
from headrace.quantities import size

OLDEST_PYTHON = (3, 11)
PACKAGES = ("crc32c", "cramjam", "confluent-kafka", "typer", "rich")

# A node opens a few files per partition and one per connection; a thousand is not enough for long.
FEW_OPEN_FILES = 10_000
LITTLE_SPACE_BYTES = 1 << 30  # one segment of the default size
LITTLE_SPACE_SHARE = 0.1

TOOLS = {
    "java": "only for Apache Kafka's own tools, `make interop` and pipelines",
}


def check_machine(data: Path) -> list[Finding]:
    return [
        check_python(sys.version_info[:2], optimized=bool(sys.flags.optimize)),
        check_packages(),
        check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        check_disk(data),
        check_kcat(),
        *(check_tool(name, use) for name, use in TOOLS.items()),
        check_spark(),
    ]


def check_python(version: tuple[int, ...], *, optimized: bool) -> Finding:
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if version < OLDEST_PYTHON:
        return wrong("python", name, "Headrace needs Python 3.11 or newer.")
    if optimized:
        return wrong(
            "python", f"{name} with -O", "Unset PYTHONOPTIMIZE: -O removes checks of the broker."
        )
    return good("python", name)


def check_packages() -> Finding:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return wrong("packages", f"{', '.join(missing)} not installed", "Run `make setup`.")
    return good("packages", ", ".join(found))


def check_open_files(hard_limit: int) -> Finding:
    if hard_limit == resource.RLIM_INFINITY:
        return good("open files", "no limit")
    if hard_limit < FEW_OPEN_FILES:
        return watch(
            "open files",
            f"at most {hard_limit:,}",
            f"Raise the hard limit to {FEW_OPEN_FILES:,} or more (ulimit -Hn, LimitNOFILE=).",
        )
    return good("open files", f"at most {hard_limit:,}; a node raises its own limit to that")


def check_disk(data: Path) -> Finding:
    """Space and write access of the disk with the data folder, or where that would be made."""
    folder = data.absolute()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return wrong("disk", f"{folder} cannot be written", "Choose another folder with --data.")
    usage = shutil.disk_usage(folder)
    found = f"{size(usage.free)} free of {size(usage.total)} for {data}"
    if usage.free < LITTLE_SPACE_BYTES:
        return wrong("disk", found, "Free some space, or choose another disk with --data.")
    if usage.free < usage.total * LITTLE_SPACE_SHARE:
        return watch("disk", found, "The disk is nearly full: lower retention or free some space.")
    return good("disk", found)


def check_tool(name: str, use: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return good(name, f"not installed; not needed ({use})")
    return good(name, path)
