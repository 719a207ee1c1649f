"""Writing once: one fenced writer, marks, outcomes, and the end of transactions that hang."""
