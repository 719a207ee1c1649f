"""How a client of ours proves who it is: tokens, SASL, certificates."""
