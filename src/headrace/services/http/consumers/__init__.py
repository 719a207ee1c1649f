"""Consumer instances of the proxies' v2: each a consumer with a name and an owner."""
