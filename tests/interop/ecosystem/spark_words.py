"""Spark with its Kafka connector, asked for one thing after the other, so that it starts only once.

Arguments: bootstrap, folder of the connector's jars, folder for checkpoints. Reads one JSON object
per line: what is to be done, and the options of the connector. Answers one JSON object per line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

# It runs for seconds on tables of a few rows: compiling well costs more than it gives.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
HERE = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


class Words:
    def __init__(self, bootstrap: str, jars: str, checkpoints: str) -> None:
        self.checkpoints = Path(checkpoints)
        self.at = {"kafka.bootstrap.servers": bootstrap}
        connector = ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar")))
        builder = SparkSession.builder.config(map={**HERE, **QUICK, "spark.jars": connector})
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("WARN")

    def batch(self, options: dict[str, str]) -> list[dict[str, Any]]:
        """Everything between two places, as one table."""
        return rows(self.spark.read.format("kafka").options(**self.at, **options).load())

    def stream(self, options: dict[str, str], name: str) -> list[list[dict[str, Any]]]:
        """What is there since the checkpoint of this name, in the batches it comes in."""
        seen: list[list[dict[str, Any]]] = []
        source = self.spark.readStream.format("kafka").options(**self.at, **options).load()
        writer = source.writeStream.foreachBatch(lambda batch, _: seen.append(rows(batch)))
        self.finish(writer, name)
        return seen

    def copy(self, options: dict[str, str], name: str, sink: str) -> None:
        """From topic to topic, the values in capitals, since the checkpoint of this name."""
        source = self.spark.readStream.format("kafka").options(**self.at, **options).load()
        loud = source.selectExpr("key", "upper(CAST(value AS STRING)) AS value", "partition")
        writer = loud.writeStream.format("kafka").options(**self.at, topic=sink)
        self.finish(writer, name)

    def write(self, words: list[list[str]], sink: str) -> None:
        """A table of keys and values into a topic, as one batch."""
        table = self.spark.createDataFrame([tuple(pair) for pair in words], ["key", "value"])
        table.write.format("kafka").options(**self.at, topic=sink).save()

    def finish(self, writer: Any, name: str) -> None:
        place = str(self.checkpoints / name)
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240), f"the query {name} did not end"
        finally:
            query.stop()


def rows(table: DataFrame) -> list[dict[str, Any]]:
    """The table by place, as text and numbers; headers if they were asked for."""
    columns = [
        "partition",
        "offset",
        "unix_millis(timestamp) AS timestamp",
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS value",
    ]
    if "headers" in table.columns:
        columns.append(
            "transform(headers, h -> h.key || '=' || CAST(h.value AS STRING)) AS headers"
        )
    found = table.selectExpr(*columns).orderBy("partition", "offset").collect()
    return [row.asDict() for row in found]


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not come between
    words = Words(*sys.argv[1:4])
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        answer = getattr(words, job.pop("do"))(**job)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
