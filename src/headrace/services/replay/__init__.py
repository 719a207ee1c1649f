"""Replay: lets records be read again, by the same group or in another topic, with a way back."""
