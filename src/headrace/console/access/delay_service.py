"""The delay service as a page asks it. If it does not run, the page shows that at once and does not
wait."""

from __future__ import annotations

from headrace.client.delay.instances import DelayInstances, NoDelayService
from headrace.console.access.held_connection import HeldClientSettings

# For a service that has just started and has not read all waiting messages yet.
PATIENCE_S = 3.0


def running_service(connection: HeldClientSettings) -> DelayInstances:
    instances = DelayInstances(connection.hasty(PATIENCE_S))
    try:
        instances.require(wait_s=0)
    except NoDelayService:
        raise NoDelayService(
            "No delay service runs for this cluster, or it is just starting: what waits is not "
            "known. `headrace start` brings its own; elsewhere run `headrace delay serve`."
        ) from None
    return instances
