"""The damage that `headrace segment check` finds in a data folder, and the ways of `repair`."""
