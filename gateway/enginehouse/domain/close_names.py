"""Finds the name that was probably meant."""

from __future__ import annotations

from difflib import get_close_matches


def did_you_mean(name: str, known: list[str]) -> str:
    """``did you mean "..."?`` with the name in ``known`` that is closest to ``name``; empty if none is close."""
    near = get_close_matches(name, known, n=1)
    return f'did you mean "{near[0]}"?' if near else ""
