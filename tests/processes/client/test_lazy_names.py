"""The package is cheap to import: librdkafka is loaded with the first name that needs it."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_nothing() -> None:
    script = (
        "import sys, headrace, headrace.client\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "from headrace import Producer\n"
        "assert 'confluent_kafka' in sys.modules and Producer.__name__ == 'Producer'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
