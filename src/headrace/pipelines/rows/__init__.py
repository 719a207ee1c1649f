"""From records to rows: schemas, what is read exactly, and what cannot be a row."""
