"""What rules say of a request."""

from __future__ import annotations

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
