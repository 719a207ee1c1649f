"""Records that somebody looks at, without a consumer group."""
