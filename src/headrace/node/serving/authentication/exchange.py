"""One login by one mechanism: tokens in, tokens out.

An exchange is made for one login, gets the client's tokens in order, and either has a `user` after
one of them or raises `LoginFailed`. It knows nothing of connections, of the protocol around the
tokens, or of what the user may do.
"""

from __future__ import annotations

from typing import Protocol

from headrace.environment import Now


class LoginFailed(Exception):
    """`told` is the reason that the client may see; None: only that it was refused.

    The text itself is for the log and never contains what the client has sent.
    """

    def __init__(self, why: str, *, told: str | None = None) -> None:
        super().__init__(why)
        self.told = told


class Exchange(Protocol):
    user: str | None  # None until the login is complete
    ends_wall_ms: int | None  # when the credentials expire; None: never

    def step(self, token: bytes, now: Now) -> bytes:
        """Returns the answer to the client's next token; raises LoginFailed."""
        ...


OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different"
