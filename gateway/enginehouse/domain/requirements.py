"""The requirements of a request."""

from __future__ import annotations

from typing import Any

import msgspec


class RuleEffects(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules of ``[[routing.rules]]`` say of one request. Backends are names or patterns."""

    rule: int | None = None
    """The place of the rule that takes the request, from 0; ``None`` if those that match leave it to others."""
    model: str = ""
    """The model that serves it, in place of the one that the client named."""
    spare: str = ""
    """The model that the client named, if it serves where ``model`` cannot."""
    backends: tuple[str, ...] = ()
    """The only backends that may serve it."""
    preferred: tuple[str, ...] = ()
    """Those that serve it if one of them can."""
    avoided: tuple[str, ...] = ()
    """Those that serve it only if no other one can."""
    strategy: str = ""
    """The strategy that picks, in place of the model's."""


class Requirements(msgspec.Struct, kw_only=True):
    """The requirements of one request. Extractors write them; filters, scorers and strategies read them."""

    model: str
    """The model that the client asked for; an alias is not resolved."""
    path: str = "/v1/chat/completions"
    """The endpoint."""
    stream: bool = False
    estimated_tokens: int = 0
    """Prompt tokens, estimated as one per four characters of text."""
    needs_vision: bool = False
    needs_tools: bool = False
    needs_json_mode: bool = False
    caller: str | None = None
    """The name of the caller's key. The gateway sets it when the extractors have run."""
    user: str | None = None
    """The end user that the body names, or a hash of the name (``auth.hash_users``). Set at the same time."""
    zones: tuple[str, ...] = ()
    """The privacy zones that it must not leave. The gateway sets them with the caller."""
    rule_effects: RuleEffects | None = None
    """What the rules say of it; ``None`` if no rule matches. The gateway sets it with the caller."""
    session: str = ""
    """The session that it belongs to, as ``routing.session`` says; found only if a strategy has ``reads_session``."""
    extra: dict[str, Any] = {}
    """Values of plugins. Begin each key with the name of your plugin."""
