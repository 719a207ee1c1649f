"""Share groups (KIP-932): the parts that need neither a log nor a connection.

`share_partition.py` is one partition as one share group sees it; `state_machine.py` is the state
that share coordinators store for it.
"""
