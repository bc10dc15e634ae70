"""How much a model thinks: efforts, levels and budgets of the dialects as engines take them.

Engines know ``low``, ``medium`` and ``high`` (``reasoning_effort``), and whether the template lets the model think at
all: ``enable_thinking`` in Qwen's and most others, ``thinking`` in DeepSeek's and Granite's. Harmony's, Mistral's and
DeepSeek's templates refuse further levels, or take them for one of these. A chat also has a budget of tokens until an
engine is chosen: its driver says by which name it takes one, if at all.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from enginehouse.drivers import ThinkingFields

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_LEVELS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_BUDGETS: Final = ((4096, "low"), (16384, "medium"))
"""Tokens of reasoning up to which a level is meant; more are ``high``."""
_LEVEL: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget_tokens"
_TEMPLATE: Final = "chat_template_kwargs"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def effort_fields(effort: Effort | None) -> dict[str, Any]:
    """The fields of a chat for an effort; none without one."""
    if effort is None:
        return {}
    return switch_fields(on=False) if effort == "none" else {_LEVEL: _LEVELS[effort]}


def budget_fields(tokens: int) -> dict[str, Any]:
    """The fields of a chat for so many tokens of reasoning."""
    level = next((level for most, level in _BUDGETS if tokens <= most), "high")
    return {_LEVEL: level, _BUDGET: tokens}


def switch_fields(*, on: bool) -> dict[str, Any]:
    """The fields of a chat that lets the model think or not."""
    return {_TEMPLATE: {"enable_thinking": on, "thinking": on}}


def says_how_much(fields: dict[str, Any]) -> bool:
    """Whether the fields of a chat have a level of reasoning, perhaps with a budget."""
    return _LEVEL in fields


def as_engine_takes_it(body: bytes, takes: ThinkingFields) -> bytes:
    """The ``body`` of a chat with a level, with the fields that the engine takes."""
    fields = _fields(body)
    budget = fields.pop(_BUDGET, None)
    if budget is not None and takes.budget:
        fields[takes.budget] = budget
    if takes.level_in_template:
        fields[_TEMPLATE] = msgspec.Raw(b'{"%s":%s}' % (_LEVEL.encode(), bytes(fields[_LEVEL])))
    return msgspec.json.encode(fields)
