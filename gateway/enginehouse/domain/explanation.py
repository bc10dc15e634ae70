"""Facts of routing decisions: what rules say, figures, explanations."""

from __future__ import annotations

from typing import Any

import msgspec


class RuleEffects(msgspec.Struct, frozen=True, kw_only=True):
    """What ``[[routing.rules]]`` and ``routing.least_tier`` say of one request. Backends are names or patterns."""

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
    least_tier: int = 0
    """The least tier of the backends that may serve it."""


class RouteDetails(msgspec.Struct, frozen=True):
    """The figures of a decision. ``candidates`` counts those of the chosen model, also those that failed the request.

    ``dropped`` counts the candidates that each filter dropped, of all models that were tried, and ``reasons`` says why,
    if no candidate was left. ``losers``: other candidates with their scores, if they have any. Both name the first 10.
    """

    strategy: str
    candidates: int
    dropped: dict[str, int] = {}
    score: float | None = None
    began: float | None = None
    """When the decision began, on the clock of the request."""
    losers: tuple[tuple[str, float | None], ...] = ()
    reasons: tuple[str, ...] = ()


class PrefixFacts(msgspec.Struct, frozen=True, gc=False):
    """How much of a prompt its engine has in its prefix cache, and why not more, as the strategy estimates it."""

    tokens: int
    """Of the whole prompt."""
    cached: int
    """Those at its beginning that the engine has."""
    lost: int
    """Those that could have been cached too, without the reason ``why``."""
    why: str
    """Why the cached part ends where it does. ``new``: nothing like it was sent before. ``system``, ``tools`` or
    ``message:N``, the message at index ``N``: it differs there from all before. ``evicted``: the engine had to make
    room. ``moved``: another engine has more of it. ``restarted``: the engine that had it was restarted."""


class Verdict(msgspec.Struct, frozen=True):
    """A strategy's rating of one candidate.

    ``score`` is the total, or ``None`` if the strategy does not score; ``parts`` are its components, by name.
    """

    score: float | None = None
    parts: dict[str, float] = {}


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate of an ``Explanation``."""

    replica: str
    backend: str
    model: str
    score: float | None = None
    parts: dict[str, float] = {}
    slots: int | None = None
    """The most requests that its backend serves at once; ``None`` if no limit is known."""
    free: int | None = None
    """Free slots."""
    engine_waiting: int | None = None
    """Requests that wait inside the engine; ``None``, as the next two, if it does not report its figures."""
    kv_usage: float | None = None
    """The share of the engine's KV cache that is in use, from 0 to 1."""
    figures_age_ms: float | None = None
    """The age of these two figures."""
    cached_tokens: int | None = None
    """Tokens of the prompt that the engine probably has in its cache; ``None`` if the strategy does not know."""
    backlog_s: float | None = None
    """Expected seconds before it could begin with the request; ``None`` if the strategy does not know."""
    ms_per_token: float | None = None
    """Milliseconds that its engine takes for a token that it reads; ``None`` if the strategy does not know."""
    ms_per_output_token: float | None = None
    """The same for one that it writes."""
    evicts: list[str] = []
    """The replicas that would stop so that this one can be loaded."""
    dropped_by: str | None = None
    """The filter that dropped the candidate, or ``role`` if it serves nothing alone; ``None`` if it was kept."""
    why: str | None = None
    """The reason."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a routing decision, as ``enginehouse explain route`` prints them.

    ``chosen`` is a replica, or ``None`` with an ``error`` object.
    """

    requested: str
    resolved: str | None
    reason: str | None
    attempted: list[str]
    requirements: dict[str, Any]
    candidates: list[ExplainedCandidate]
    prefix: PrefixFacts | None = None
    """What ``chosen`` has of the prompt; ``None`` if the strategy does not know."""
    chosen: str | None
    waits: bool | msgspec.UnsetType = msgspec.UNSET
    """True if ``chosen`` has no free slot, so that the request would wait for any replica of the model; else absent."""
    prefill: str | msgspec.UnsetType = msgspec.UNSET
    """The replica that reads the prompt for ``chosen``; absent if no other one does."""
    error: dict[str, Any] | None
