"""Options that several commands share, and what they make of what people type."""
