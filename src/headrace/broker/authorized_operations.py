"""What a client may do, as the bits in which answers say so.

Nobody is denied anything yet, so these are all the operations that each kind of resource has.
"""

from __future__ import annotations

NOT_ASKED_FOR = -(2**31)

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_A_TOPIC = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_THE_CLUSTER = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
