"""How logs reach the disk: what is not written or flushed yet, open files, folders that fail."""
