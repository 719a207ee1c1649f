"""The views of `headrace backlog`."""
