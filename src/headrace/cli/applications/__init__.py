"""Commands for what runs on a cluster: apps, the outbox, triggers, pipelines, shippers."""
