"""Where clients come in: listening sockets, how many may come, TLS, and what is asked of them."""
