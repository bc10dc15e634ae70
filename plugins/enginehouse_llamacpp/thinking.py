"""How llama-server takes what a chat says of thinking."""

from __future__ import annotations

from typing import Final

from enginehouse.drivers import ThinkingFields

THINKING: Final = ThinkingFields(budget="thinking_budget_tokens", level_in_template=True)
"""Builds before b10453 read ``reasoning_effort`` only where it stands for the template (``server-common.cpp``)."""
