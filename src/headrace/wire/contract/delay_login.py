"""How the delay service beside a secured node logs in: a user and the place of its password.

The node makes a new password at each start, keeps it in memory, and hands it to its child in the
environment, which only the same user of the machine can read. The listener for it is on loopback.
An app that starts the service hands it all of its own client settings the same way.
"""

from __future__ import annotations

USER = "headrace-delay"
PASSWORD_VARIABLE = "HEADRACE_DELAY_PASSWORD"
SETTINGS_VARIABLE = "HEADRACE_DELAY_CLIENT"  # JSON: librdkafka's settings, passwords among them
MECHANISM = "SCRAM-SHA-256"


def client_settings(password: str) -> dict[str, str]:
    """librdkafka's settings for that listener."""
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": password,
    }
