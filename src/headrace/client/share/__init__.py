"""Share groups (KIP-932) with our own codecs: decision 40 says why not with librdkafka.

`share_consumer.py` is the public class. `share_session.py` (what is sent to one leader and what its
answers mean), `acquired_records.py` and `membership.py` are its parts.
"""
