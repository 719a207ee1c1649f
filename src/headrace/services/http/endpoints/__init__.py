"""One module per area: read the request, ask the cluster, write the answer.

`ENDPOINTS` is the table of contents: the name that a route carries, and the function behind it.
"""

from __future__ import annotations

from headrace.services.http.endpoints import (
    about,
    clusters,
    consumers,
    delayed,
    produce,
    queues,
    records3,
    streams,
    topics,
)
from headrace.services.http.exchange import Endpoint

ENDPOINTS: dict[str, Endpoint] = {
    **about.ENDPOINTS,
    **topics.ENDPOINTS,
    **clusters.ENDPOINTS,
    **produce.ENDPOINTS,
    **records3.ENDPOINTS,
    **consumers.ENDPOINTS,
    **queues.ENDPOINTS,
    **streams.ENDPOINTS,
    **delayed.ENDPOINTS,
}
