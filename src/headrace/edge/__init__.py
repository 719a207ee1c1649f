"""What our HTTP servers have in common: names, guard, listener, status pages, a process of its own.

Each server keeps its routes, its words and its limits, and gives them to these parts. Nothing here
knows a service, a client or a node. Import the modules, not this package: each loads only what it
needs, and a node loads `http.server` or aiohttp only if it serves such pages.
"""
