"""A pipeline that cannot be declared or run: one sentence for the user."""

from __future__ import annotations


class PipelineError(Exception):
    """The text says what is wrong and what to do."""
