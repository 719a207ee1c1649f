"""Decodes bytes of messages as the user asks: by a JSON path, by an Avro schema. Pure, bounded."""
