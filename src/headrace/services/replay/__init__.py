"""Replay: have records read again, by the same group or in another topic, with a way back."""
