"""Records that requests bring, and the keys by which a repeated request counts once."""
