"""Users that a cluster without any gets at its start: the file of `headrace.first.users`.

JSON, a list of objects with user, mechanism, iterations, salt, stored_key and server_key (base64):
the stored form of a password, never the password. `headrace security init` writes it. Once the
cluster has a user the file means nothing, so a changed password stays changed.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.serving.authentication.scram import FEWEST_ITERATIONS, TYPES
from headrace.wire.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

SETTING = "headrace.first.users"


def read_first_users(path: str) -> list[UserScramCredentialRecord]:
    try:
        return [_record(entry) for entry in json.loads(Path(path).read_text("utf-8"))]
    except OSError as problem:
        raise BadValue(f"{SETTING}={path} cannot be read: {problem.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise BadValue(
            f"{SETTING}={path} is not a list of users with their keys; "
            "`headrace security init` writes one."
        ) from None


def _record(entry: dict[str, Any]) -> UserScramCredentialRecord:
    user, iterations = entry["user"], entry["iterations"]
    if not isinstance(user, str) or not user:
        raise ValueError("no name")
    if not isinstance(iterations, int) or iterations < FEWEST_ITERATIONS:
        raise ValueError("too few iterations")
    salt, stored_key, server_key = (
        base64.b64decode(entry[name], validate=True)
        for name in ("salt", "stored_key", "server_key")
    )
    return UserScramCredentialRecord(
        user, TYPES[entry["mechanism"]], salt, stored_key, server_key, iterations
    )
