"""One broker process, wired in `assembly/`; it knows no client and nothing that runs beside a node.

Lowest first: `storage` and `metadata`; `consensus`, `replication` and `coordination`; `serving`;
`broker` and `controller`; `assembly`; on top `process` (sockets, threads, clocks, the disk) or
`simulator` (the same code on virtual time).
"""
