"""An attempt at a record: its handler is called within its time, what it returns is sent."""
