"""Coming from Celery: a task with arguments, countdown, retries, a periodic task and a result.

Run it on any Kafka cluster that a delay service serves. It makes its own topics.
"""

# ruff: noqa: T201
from __future__ import annotations

import json

from headrace import Admin, App, Consumer, Producer, Retry
from headrace.app import Message
from headrace.client import to_json

TASKS, RESULTS = "from-celery-tasks", "from-celery-results"
app = App(group="celery-workers")


# @app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=True, acks_late=True)
@app.on(TASKS, concurrency=8, retry=Retry(attempts=4, first="100ms"), publish=RESULTS)
def add(task: dict, message: Message) -> dict:
    if task["name"] == "flaky" and message.attempt == 1:
        raise ConnectionError("try again")
    return {"task": task["name"], "result": task["x"] + task["y"], "attempts": message.attempt}


def wait_for_results(count: int) -> None:
    """AsyncResult.get(): results are messages; those of a request are told by their key."""
    with Consumer(topics=[RESULTS], group="celery-client") as results:
        found = []
        while len(found) < count:
            found += [json.loads(each.value or b"") for each in results.batch(timeout_s=60)]
    for each in sorted(found, key=lambda result: str(result["task"])):
        print(f"{each['task']} = {each['result']} after {each['attempts']}", flush=True)


if __name__ == "__main__":
    admin = Admin()
    for topic in (TASKS, RESULTS):
        admin.topics.create(topic, partitions=2)
    admin.delayed.enable(TASKS)
    with app.running(), Producer(value_serializer=to_json) as producer:
        producer.send(TASKS, {"name": "add", "x": 1, "y": 2})  # add.delay(1, 2)
        producer.send(TASKS, {"name": "flaky", "x": 3, "y": 4})
        # add.apply_async((5, 6), countdown=1, task_id="later"); revoke("later") is a cancel.
        later = {"name": "later", "x": 5, "y": 6}
        producer.send(TASKS, later, key="later", id="later", delay="1s")
        wait_for_results(3)
        # Celery beat is a cron, and needs no process of its own.
        tick = {"name": "tick"}
        producer.send_sync(TASKS, tick, key="tick", id="tick", cron="0 9 * * mon-fri")
        print("tick:", admin.delayed.cancel(TASKS, "tick", key="tick").outcome)
