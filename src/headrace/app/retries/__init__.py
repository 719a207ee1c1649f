"""What becomes of a record that failed: tried again, tried later, or put with the dead letters."""
