"""Dead letters: look at them, send them again to the group that failed, or put them away."""
