"""Reads how long an answer may become."""

from __future__ import annotations

from enginehouse.domain.request import Body


def answer_limit(body: Body) -> int | None:
    """The most tokens of an answer that a body asks for; ``None`` if it says nothing."""
    wanted = body.max_completion_tokens or body.max_tokens or body.max_output_tokens
    return wanted if isinstance(wanted, int) and wanted > 0 else None
