"""Share groups (KIP-932) with our own codecs: decision 40 explains why not with librdkafka.

`share_consumer.py` is the public class. `share_session.py` (the requests to one leader and the
meaning of its answers), `acquired_records.py` and `membership.py` are its parts.
"""
