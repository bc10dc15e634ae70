"""The tables ``[routing]`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from enginehouse.config.hedge_after import OFF
from enginehouse.config.section import BrokenStreamRule, Count, Positive, Section, Share, Weight


class WeightSettings(Section, frozen=True):
    """The weights of the `smart` strategy. They must sum to 100."""

    priority: Annotated[Weight, Meta(description="weight of the backend's `priority`")] = 50
    load: Annotated[Weight, Meta(description="weight of the backend's live requests")] = 30
    latency: Annotated[Weight, Meta(description="weight of the backend's average latency")] = 20


class ScorerSettings(Section, frozen=True):
    """One scorer of the `weighted` strategy."""

    type: Annotated[str, Meta(description="a registered scorer")]
    name: Annotated[str, Meta(description="name of this instance; defaults to the type")] = ""
    weight: Annotated[Positive, Meta(description="relative to the other scorers")] = 1
    parameters: Annotated[dict[str, Any], Meta(description="parameters of the scorer")] = {}


class RoutingSettings(Section, frozen=True):
    """How the gateway chooses the replica for a request."""

    strategy: Annotated[
        str, Meta(description="`smart`, `round_robin`, `priority_only`, `random`, `weighted` or a plugin's")
    ] = "smart"
    max_retries: Annotated[
        Count, Meta(description="how often a request is retried before the first byte of an answer")
    ] = 2
    retry_budget: Annotated[
        Share,
        Meta(
            description="which share of the requests of the last 10 s may be sent to one more engine: retries, hedges "
            "and continuations together; 100 in 10 s always may"
        ),
    ] = 0.1
    hedge_after: Annotated[
        str,
        Meta(
            description="how long a stream may be without a first byte before another replica is asked for it too: a "
            "duration, or `p50` to `p99` of the model's recent times; or `off`"
        ),
    ] = OFF
    broken_stream: Annotated[
        BrokenStreamRule,
        Meta(
            description="what follows when an engine breaks a stream off: another continues it, or is asked anew and "
            "what the client has is skipped, or an error; each falls back to the next"
        ),
    ] = "continue"
    max_continuations: Annotated[Count, Meta(description="how often one stream is continued after breaks")] = 3
    gather: Annotated[
        bool,
        Meta(
            description="relay chats and completions without a stream as streams and gather their answers, so that "
            "they survive their engine too"
        ),
    ] = False
    weights: WeightSettings = WeightSettings()
    filters: Annotated[
        list[str] | None, Meta(description="filters to run, in order; all installed ones by default")
    ] = None
    scorers: Annotated[list[ScorerSettings], Meta(description="scorers of `weighted` and of plugins' strategies")] = []
    aliases: Annotated[
        dict[str, str], Meta(description="other names of models; an alias of an alias is not resolved")
    ] = {}
    fallbacks: Annotated[
        dict[str, list[str]], Meta(description="models to try, in order, if a model cannot serve")
    ] = {}
