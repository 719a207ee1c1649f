"""How our clients authenticate: tokens, SASL, certificates."""
