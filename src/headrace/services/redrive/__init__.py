"""Dead letters: list them, send them again to the group that failed, or discard them."""
