"""How much a model thinks: efforts, levels and budgets of the dialects as engines take them.

Engines know ``low``, ``medium`` and ``high`` (``reasoning_effort``), and whether the template lets the model think at
all: ``enable_thinking`` in Qwen's and most others, ``thinking`` in DeepSeek's and Granite's. llama-server also takes a
budget of tokens (``thinking_budget_tokens``), which the others leave unread: vLLM's ``thinking_token_budget`` is an
error without its ``--reasoning-parser``.
"""

from __future__ import annotations

from typing import Any, Final, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_LEVELS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_BUDGETS: Final = ((4096, "low"), (16384, "medium"))
"""Tokens of reasoning up to which a level is meant; more are ``high``."""


def effort_fields(effort: Effort | None) -> dict[str, Any]:
    """The fields of a chat for an effort; none without one."""
    if effort is None:
        return {}
    return switch_fields(on=False) if effort == "none" else {"reasoning_effort": _LEVELS[effort]}


def budget_fields(tokens: int) -> dict[str, Any]:
    """The fields of a chat for so many tokens of reasoning."""
    level = next((level for most, level in _BUDGETS if tokens <= most), "high")
    return {"reasoning_effort": level, "thinking_budget_tokens": tokens}


def switch_fields(*, on: bool) -> dict[str, Any]:
    """The fields of a chat that lets the model think or not."""
    return {"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}
