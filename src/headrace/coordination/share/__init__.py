"""Share groups (KIP-932): the parts that are decided without a log or a connection.

`share_partition.py` is one partition as one share group sees it. Not served yet: no request comes
here, and ApiVersions names none of the APIs of share groups.
"""
