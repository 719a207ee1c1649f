"""Delayed messages: records of `<topic>.delay` appear in `<topic>` when they are due, exactly once.

The pure part, in reading order: `instructions` (what a record asks for), `cron`, `progress` (what
is committed), `settlement` (what one transaction does), `timeline` (one intake partition as a state
machine), `store` (what is pending, on disk). The rest is what reads, writes and waits around it.
"""
