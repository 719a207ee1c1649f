"""Share groups (KIP-932): the parts that are decided without a log or a connection.

`share_partition.py` is one partition as one share group sees it; `state_machine.py` is the state
that share coordinators keep of it.
"""
