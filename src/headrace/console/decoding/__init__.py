"""Bytes of messages as somebody asks for them: by a JSON path, by an Avro schema. Pure, bounded."""
