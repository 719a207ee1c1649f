"""How definitions become code: `schema` reads them, `decoders` and `encoders` write functions,
`modules` puts a file together. Only `headrace.wire.protocol.generator` and tests import this."""
