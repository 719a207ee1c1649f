"""An application: handlers for topics, run as one member of a consumer group.

`@app.on(...)` says which function handles which topic and how; `app.run()` runs them until the
process gets a signal to stop. One `App` is one group; start more processes, or more `App`s, to
share the work. The same app runs on Headrace and on any Kafka cluster: it uses the public protocol
only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headrace.app.attempts.handler import Handler, plan
from headrace.app.attempts.sender import Sender
from headrace.app.decoding import Codec
from headrace.app.dispatch.lanes import OrderBy
from headrace.app.observation.observer import Observer, forgiven
from headrace.app.once.memory import Once
from headrace.app.retry import Duration, Retry, milliseconds
from headrace.app.shadow import Shadow
from headrace.app.subscription import Subscription, checked
from headrace.app.worker.timers import WallClock, wall_ms
from headrace.client.connection import ClientSettings, Setting, connected
from headrace.client.records import header_list

if TYPE_CHECKING:
    import asyncio

    from headrace.app.triggers.in_process_target import EventHandler
    from headrace.app.worker.worker import Worker
    from headrace.client.producer.delivery import Delivery
    from headrace.client.records import GivenHeaders, HeaderList

H = TypeVar("H", bound=Handler)

# "auto": use the cluster's delay service, or start one for this app's own topics. "require": fail
# at start if no instance serves delayed messages. "off": waiting messages are kept by the owner of
# their partition.
DelayMode = Literal["auto", "require", "off"]


class App:
    """`app = App("localhost:9092", group="billing")`; see `on` for handlers, `run` to begin."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        group: str,
        settings: Mapping[str, Setting] | None = None,
        delay: DelayMode = "auto",
        drain: Duration = "30s",
        dead_letters_keep: Duration = "30d",
        start_from: Literal["earliest", "latest"] = "earliest",
        codec: Codec | None = None,
        observers: Sequence[Observer] = (),
        clock: WallClock | None = None,
        seed: int | None = None,
    ) -> None:
        """`settings` are librdkafka's, for all of the app's clients. `drain` is how long `stop`
        waits for running handlers. `start_from` is where a new group begins. `seed` makes the
        jitter of retries repeatable.
        """
        if not group:
            raise ValueError("An app is a consumer group: give it a name with group=.")
        if delay not in ("auto", "require", "off"):
            raise ValueError('delay is "auto", "require" or "off".')
        self.connection = connected(bootstrap, settings)
        self.group = group
        self.delay = delay
        self.drain_ms = milliseconds(drain, "drain")
        self.dead_letters_keep_ms = milliseconds(dead_letters_keep, "dead_letters_keep")
        self.start_from = start_from
        self.codec = codec
        self.observers: list[Observer] = list(observers)
        self.clock: WallClock = clock or wall_ms
        self.seed = seed
        # A new partition waits for the fetch under way; librdkafka's default is 500 ms.
        self.fetch_wait_ms = 100
        self.subscriptions: list[Subscription] = []
        self.shadow: Shadow | None = None  # set while it runs as a shadow
        self._sender: Sender | None = None
        self._worker: Worker | None = None

    # ---- handlers

    def on(
        self,
        *topics: str,
        retry: Retry | None = None,
        order_by: OrderBy = None,
        concurrency: int = 1,
        batch: int | None = None,
        batch_wait: Duration = 0,
        queue: bool = False,
        exactly_once: bool = False,
        once: Once | None = None,
        publish: str | None = None,
        codec: Codec | None = None,
        dead_letters: bool = True,
        confirm: bool = False,
        replay_safe: bool = False,
    ) -> Callable[[H], H]:
        """Handle these topics with the function below; it stays an ordinary function.

        A topic that begins with ^ is a regular expression. `order_by` keeps the order of a "key" or
        a "partition", also under retry; None keeps none. `concurrency` is how many records are
        handled at once, whatever the number of partitions. `queue` reads with a share group: any
        number of workers, no order, one acknowledgement per record. `publish` names the topic for
        values that the handler returns or yields, unless they are a `Publish`. Without
        `dead_letters`, records that cannot be handled are logged and dropped. With `confirm`,
        messages whose outbox asks for it are confirmed when they have had their effect.
        `replay_safe` declares that running the handler again over old records is harmless:
        `headrace app run --shadow` runs no others.
        """
        local_names = sys._getframe(1).f_locals

        def subscribed(handler: H) -> H:
            self.add(
                handler,
                topics,
                retry=retry or Retry(),
                order_by=order_by,
                concurrency=concurrency,
                batch=batch,
                batch_wait_ms=milliseconds(batch_wait, "batch_wait"),
                queue=queue,
                exactly_once=exactly_once,
                once=once,
                publish=publish,
                codec=codec or self.codec,
                dead_letters=dead_letters,
                confirm=confirm,
                replay_safe=replay_safe,
                local_names=local_names,
            )
            return handler

        return subscribed

    def trigger(self, *topics: str, **options: Any) -> Callable[[EventHandler], EventHandler]:
        """Call the function below with lists of CloudEvents, as a cloud function is called.

        Options: `filter` (an expression over one record), `batch` (records per call), `bytes`
        (of their data), `wait` (for an incomplete batch), `rate` (calls per second), `concurrency`,
        `retry`. It returns nothing, or the ids of the events that failed.
        """
        from headrace.app.triggers.decorator import trigger

        return trigger(self, topics, **options)

    def add(
        self,
        handler: Handler,
        topics: Sequence[str],
        *,
        local_names: dict[str, Any] | None = None,
        **options: Any,
    ) -> Subscription:
        """The same as `on`, for programs that create handlers; options are those of
        Subscription."""
        if self._worker is not None:
            raise RuntimeError("The app is running; add handlers before it starts.")
        planned = plan(handler, batch=options.get("batch") is not None, local_names=local_names)
        subscription = checked(Subscription(topics=tuple(topics), plan=planned, **options))
        if any(other.queue != subscription.queue for other in self.subscriptions):
            raise ValueError(
                f"{subscription.name}: a queue needs a group of its own, because a share group and "
                "a consumer group cannot have the same name; make two Apps."
            )
        for topic in subscription.topics:
            for other in self.subscriptions:
                if topic in other.topics:
                    raise ValueError(
                        f"{other.name} handles {topic} already; two handlers of one topic need two "
                        "groups, that is two Apps."
                    )
        self.subscriptions.append(subscription)
        return subscription

    # ---- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: bytes | str | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        **when: Any,
    ) -> Delivery:
        """Send a record from anywhere; `when` is `delay=`, `deliver_at=`, `id=`, `cron=`.

        Values go as in handlers: models, dataclasses, dicts as JSON, str and bytes as they are.
        """
        if self.observers:
            headers = self._with_context(headers)
        if self.shadow is not None:
            topic = self.shadow.topic(topic)
            when = {}  # a shadow's delayed messages are not delivered
        return self.sender.send(topic, value, key=key, headers=headers, partition=partition, **when)

    def _with_context(self, given: GivenHeaders | None) -> HeaderList:
        """The headers with the calling handler's trace context; given headers stay."""
        headers = header_list(given)
        there = {name for name, _ in headers}
        for observer in self.observers:
            with forgiven(observer):
                headers += [pair for pair in observer.sending() if pair[0] not in there]
        return headers

    @property
    def sender(self) -> Sender:
        if self._sender is None:
            self._sender = Sender(self.connection, codec=self.codec)
        return self._sender

    # ---- running

    def run(self) -> None:
        """Handle records until SIGINT or SIGTERM, then drain, commit and leave."""
        from headrace.app.worker.foreground import run_until_signal

        run_until_signal(self)

    async def serve(self) -> None:
        """Handle records within a running loop; cancel it to stop."""
        from headrace.app.worker.foreground import serve

        await serve(self)

    def start(self) -> None:
        """Handle records in the background, on threads of its own, until `stop`."""
        self.begin(None)

    def begin(self, loop: asyncio.AbstractEventLoop | None) -> Worker:
        """Part of `start` and `serve`: handlers run on this loop, or on one of their own."""
        from headrace.app.worker.worker import Worker

        if self._worker is not None:
            raise RuntimeError("The app is running already.")
        worker = Worker(self, loop)
        try:
            worker.start()
        except BaseException:
            worker.abandon()
            raise
        self._worker = worker
        return worker

    def stop(self) -> None:
        """Drain, commit, leave the group. Handlers that need longer than `drain` are abandoned."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    @contextmanager
    def running(self) -> Iterator[App]:
        """`with app.running(): ...`, mostly for tests."""
        worker = self.begin(None)
        try:
            yield self
        finally:
            self.stop()
        if worker.failure is not None:
            raise worker.failure

    @property
    def worker(self) -> Worker | None:
        """The running worker, for health checks and metrics; None while it is stopped."""
        return self._worker
