"""What `headrace segment check` finds damaged in a data folder, and what `repair` does about it."""
