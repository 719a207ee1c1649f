"""An incomplete batch waits for more, and no longer than it was told to."""

from headrace.app import App
from headrace.testing import TestApp


def batches_of(app, **options):
    seen = []

    @app.on("orders", batch=4, batch_wait="10m", **options)
    def handle(values: list[str]) -> None:
        seen.append(values)

    return seen


def after_ten_minutes(running, seen):
    """How many were handled; asked again, because the wait may begin just after the clock moved."""
    running.broker.advance(minutes=10)
    return sum(len(batch) for batch in seen)


def test_a_batch_goes_when_it_is_full_or_when_its_time_is_over():
    app = App("localhost:9092", group="batched")
    seen = batches_of(app)
    with TestApp(app) as running:
        for number in range(6):
            running.send("orders", f"{number}", partition=0)
        running.until(lambda: app.subscriptions[0].stats.received == 6 and seen)
        assert all(len(batch) == 4 for batch in seen)
        running.until(lambda: after_ten_minutes(running, seen) == 6)
        assert [len(batch) for batch in seen] == [4, 2]


def test_batches_in_order_of_partitions_wait_as_well():
    app = App("localhost:9092", group="batched")
    seen = batches_of(app, order_by="partition")
    with TestApp(app, partitions=2) as running:
        for partition in (0, 1):
            running.send("orders", f"{partition}", partition=partition)
        running.until(lambda: app.subscriptions[0].stats.received == 2)
        assert seen == []
        running.until(lambda: after_ten_minutes(running, seen) == 2)
        assert sorted(seen) == [["0"], ["1"]]
