"""What an operator can ask a cluster and have done, once, as typed facts that others show.

Nothing here writes to a terminal, renders a page or parses an option: the command line and the
console do. A fact is a dataclass; a step that fails raises the client's errors.
"""
