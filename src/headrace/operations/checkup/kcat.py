"""Checks whether this machine's kcat can log in by SCRAM. Debian 12's cannot, at Kafka 4 brokers.

Before 2.6.1 librdkafka answers with another nonce than the server's. RFC 5802 forbids that; Apache
Kafka refuses it since 4.0, and so does Headrace. The client only gets "invalid credentials".
"""

from __future__ import annotations

import re
import shutil
import subprocess

from headrace.operations.checkup.finding import Finding, good, watch

FIRST_FOR_SCRAM = (2, 6, 1)
ABOUT = "kcat"
PATIENCE_S = 5.0


def check_kcat() -> Finding:
    path = shutil.which("kcat")
    if path is None:
        return good(ABOUT, "not installed; not needed (a quick Kafka client for the shell)")
    return judged(path, kcat_version(path))


def judged(path: str, version: tuple[int, ...] | None) -> Finding:
    if version is None:
        return good(ABOUT, path)
    found = f"{path}, with librdkafka {'.'.join(map(str, version))}"
    if version >= FIRST_FOR_SCRAM:
        return good(ABOUT, found)
    return watch(
        ABOUT,
        f"{found}: it cannot log in by SCRAM at a Kafka 4 broker, neither here nor at Apache's",
        "Take one with librdkafka 2.6.1 or newer, log in by PLAIN, or use `headrace produce` and "
        "`headrace consume`.",
    )


def kcat_version(path: str) -> tuple[int, ...] | None:
    """The version of the librdkafka in it; None if kcat does not print one."""
    try:
        said = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said.stdout + said.stderr)
    return None if found is None else tuple(map(int, found.groups()))
