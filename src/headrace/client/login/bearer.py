"""The token of a login by OAUTHBEARER, from the source in librdkafka's settings.

The source is the program's `oauth_cb`, or a provider that issues tokens
(`sasl.oauthbearer.method=oidc` with the grant `client_credentials`). Not done: the other grants,
cloud metadata, unsigned tokens.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, LoginRefused

LARGEST_ANSWER_BYTES = 1 << 20
_PREFIX = "sasl.oauthbearer."


def bearer_token(connection: ClientSettings) -> tuple[str, dict[str, str]]:
    """A token and its SASL extensions."""
    settings = connection.settings
    callback = connection.callbacks.get("oauth_cb")
    if callback is not None:
        token, _, *more = callback(settings.get(f"{_PREFIX}config", ""))
        return token, dict(more[1]) if len(more) > 1 else {}
    grant = settings.get(f"{_PREFIX}grant.type", "client_credentials")
    if settings.get(f"{_PREFIX}method", "").lower() == "oidc" and grant == "client_credentials":
        said = settings.get(f"{_PREFIX}extensions", "")
        pairs = (word.partition("=") for word in said.split(",") if word)
        return _from_provider(settings, connection.timeout_s), {k: v for k, _, v in pairs}
    raise ClientError(
        "This call needs a token for SASL OAUTHBEARER: give oauth_cb= among the settings, or "
        f"{_PREFIX}method=oidc with client id, client secret and token endpoint."
    )


def _from_provider(settings: Mapping[str, str], timeout_s: float) -> str:
    url = settings.get(f"{_PREFIX}token.endpoint.url", "")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ClientError(f"{_PREFIX}token.endpoint.url is not an http(s) address: '{url}'.")
    who = f"{settings.get(f'{_PREFIX}client.id', '')}:{settings.get(f'{_PREFIX}client.secret', '')}"
    wanted = {"grant_type": "client_credentials"}
    if scope := settings.get(f"{_PREFIX}scope"):
        wanted["scope"] = scope
    request = urllib.request.Request(
        url,
        urlencode(wanted).encode(),
        {"Authorization": f"Basic {base64.b64encode(who.encode()).decode()}"},
    )
    trusted = ssl.create_default_context(
        cafile=settings.get("https.ca.location"), cadata=settings.get("https.ca.pem")
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=trusted) as answer:
            found: Any = json.loads(answer.read(LARGEST_ANSWER_BYTES))
        token = found["access_token"]
    except urllib.error.HTTPError as refusal:
        raise LoginRefused(
            f"The provider at {url} gives no token: it answers {refusal.code}. See "
            f"{_PREFIX}client.id and {_PREFIX}client.secret."
        ) from refusal
    except OSError as failure:
        raise ClientError(f"The provider at {url} cannot be asked for a token: {failure}.") from (
            failure
        )
    except (ValueError, LookupError, TypeError) as nonsense:
        raise ClientError(f"The answer of the provider at {url} is not a token.") from nonsense
    return str(token)
