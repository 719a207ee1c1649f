"""Queries and actions of operators on a cluster, with typed results that other packages show.

Nothing here writes to a terminal, renders a page or parses an option: the command line and the
console do. A fact is a dataclass; a step that fails raises the client's errors.
"""
