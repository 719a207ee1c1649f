"""A Quix Streams application: counts words with a kept state.

Arguments: bootstrap, topic in, topic out, guarantee, folder of the state.
"""

from __future__ import annotations

import sys

from quixstreams import Application, State

bootstrap, source, sink, guarantee, state_folder = sys.argv[1:6]

app = Application(
    broker_address=bootstrap,
    consumer_group=f"quix-{source}",
    processing_guarantee=guarantee,
    auto_offset_reset="earliest",
    commit_interval=0.3,
    state_dir=state_folder,
    loglevel="WARNING",
)


def count(word: str, state: State) -> str:
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return str(seen)


words = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="str"))
words = words.group_by(
    lambda value: value,
    name="word",
    key_serializer="str",
    key_deserializer="str",
    value_serializer="str",
    value_deserializer="str",
)
words = words.apply(count, stateful=True)
words.to_topic(app.topic(sink, key_serializer="str", value_serializer="str"))
app.run()
