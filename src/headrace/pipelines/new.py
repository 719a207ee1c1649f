"""`headrace pipeline new`: a small project with one pipeline and a test that runs it.

The test starts a broker in its own process and a Spark on this machine; nothing else is needed.
Knows no Spark.
"""

from __future__ import annotations

import ast
import keyword
from pathlib import Path
from string import Template

from headrace.pipelines.declaration import NAME
from headrace.pipelines.failure import PipelineError

PIPELINE = '''"""$title: events become a number per hour."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, sum, window

from headrace.pipelines import Table, Topic, pipeline


class Event(BaseModel):
    id: int
    time: datetime
    amount: int


EVENTS = Topic("$name-events", schema=Event, event_time="time", late="10 minutes")


@pipeline(source=EVENTS, sink=Table("$name", mode="upsert", key="hour"))
def $function(events: DataFrame) -> DataFrame:
    hours = events.groupBy(window("time", "1 hour"))
    totals = hours.agg(count("*").alias("events"), sum("amount").alias("amount"))
    return totals.select(col("window.start").alias("hour"), "events", "amount")
'''

TEST = '''"""The pipeline on a real broker and a real Spark, against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from $module import $function
from headrace.client import Admin, Producer
from headrace.pipelines.testing import run_stream
from headrace.testing import Broker

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def test_$function(headrace_broker: Broker, tmp_path: Path) -> None:
    topics = Admin(headrace_broker.bootstrap).topics
    topics.create("$name-events", settings={"retention.ms": "-1"})
    expected: Counter[datetime] = Counter()
    with Producer(headrace_broker.bootstrap) as producer:
        for n in range(100):
            time = BEGAN + timedelta(minutes=3 * n)
            value = json.dumps({"id": n, "time": time.isoformat(), "amount": n % 7})
            milliseconds = int(time.timestamp() * 1000)
            producer.send("$name-events", value.encode(), timestamp_ms=milliseconds)
            expected[time.replace(minute=0)] += n % 7

    rows = run_stream($function, headrace_broker.bootstrap, tmp_path)

    assert {row["hour"].astimezone(UTC): row["amount"] for row in rows} == expected
'''

README = """# $title

`$module.py` turns the topic `$name-events` into the table `$name`: events and their amount by hour.

```sh
pip install '/path/to/headrace[spark,app]'        # a checkout, or a wheel that you built there
pip install -r requirements.txt
python -m pytest                                  # a broker and a Spark of its own
headrace start                                    # in another terminal
headrace topics create $name-events
echo '{"id": 1, "time": "2026-01-01T10:00:00Z", "amount": 5}' | headrace produce $name-events
headrace pipeline run $module.py --once
headrace lake show $name
```
"""

REQUIREMENTS = "pytest\n"  # Headrace itself is not on an index
IGNORED = "headrace-pipelines/\nheadrace-data/\n__pycache__/\n"


def write_project(name: str, below: Path) -> list[Path]:
    """The files of a new project in a new folder of that name; nothing there is overwritten."""
    if not NAME.fullmatch(name) or not name[0].isalpha():
        raise PipelineError(
            f"{name!r} is not the name of a pipeline: a letter, then a-z, 0-9, - and _."
        )
    folder = below / name
    function = name.replace("-", "_").lower()
    if keyword.iskeyword(function) or function in _names_in_files():
        raise PipelineError(
            f"{name!r} cannot be the name of the function: Python, or the files of the project, "
            "use it for something else. Choose another one."
        )
    shown = name.replace("-", " ").replace("_", " ").capitalize()
    words = {"name": name, "function": function, "module": f"{function}_pipeline", "title": shown}
    files = {
        f"{function}_pipeline.py": PIPELINE,
        f"test_{function}.py": TEST,
        "README.md": README,
        "requirements.txt": REQUIREMENTS,
        ".gitignore": IGNORED,
    }
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise PipelineError(f"{folder} is there already.") from None
    made = []
    for file, text in files.items():
        (folder / file).write_text(Template(text).substitute(words), "utf-8")
        made.append(folder / file)
    return made


def _names_in_files() -> set[str]:
    """Returns the names that the pipeline imports, and each name in its test. A function with such
    a name would hide what they need, as `sum` would hide the `sum` of its own amounts."""
    words = dict.fromkeys(("name", "function", "module", "title"), "_any")
    pipeline, test = (ast.parse(Template(text).substitute(words)) for text in (PIPELINE, TEST))
    imported = (node for tree in (pipeline, test) for node in ast.walk(tree))
    found = {node.name for node in imported if isinstance(node, ast.alias)}
    found |= {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return found | {node.arg for node in ast.walk(test) if isinstance(node, ast.arg)}
