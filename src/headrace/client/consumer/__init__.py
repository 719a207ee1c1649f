"""Reading records, alone or in a group, and committing how far a program has come."""
