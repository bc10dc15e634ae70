"""The tables ``[routing]`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from enginehouse.config.aliases import AliasSettings
from enginehouse.config.hedge_after import OFF
from enginehouse.config.section import BrokenStreamRule, Count, Duration, Positive, Section, Share, Weight


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


class RuleSettings(Section, frozen=True):
    """Where requests with a header, or of a key, go. Of several rules that match, the first one counts."""

    header: Annotated[
        str,
        Meta(pattern=r"^$|^[A-Za-z0-9-]+: *\S", description="matches requests with it, such as `x-tier: gold`"),
    ] = ""
    key: Annotated[str, Meta(description="matches requests of the key with this name; `*` matches as in a shell")] = ""
    model: Annotated[str, Meta(description="the model that serves them, whatever they ask for")] = ""
    backends: Annotated[
        list[str], Meta(description="the backends that serve them; `*` and `?` match as in a shell")
    ] = []
    strategy: Annotated[str, Meta(description="the strategy that picks their replica")] = ""
    weight: Annotated[
        Share,
        Meta(
            description="share of the matching requests that the rule takes; the others avoid its backends. With `1` "
            "no other backend may serve them, with less any other one where these cannot"
        ),
    ] = 1.0


class MirrorSettings(Section, frozen=True):
    """Another model that gets copies of the requests for one. Clients never see its answers."""

    to: Annotated[str, Meta(description="the model that gets the copies", min_length=1)]
    share: Annotated[Share, Meta(description="share of the requests that are copied")] = 1.0


class RoutingSettings(Section, frozen=True):
    """How the gateway chooses the replica for a request."""

    strategy: Annotated[
        str,
        Meta(
            description="`cache_aware`, `least_pending`, `p2c`, `session`, `smart`, `round_robin`, `priority_only`, "
            "`random`, `weighted` or a plugin's"
        ),
    ] = "cache_aware"
    strategies: Annotated[dict[str, str], Meta(description="other strategies for single models")] = {}
    rules: Annotated[
        list[RuleSettings], Meta(description="where requests with certain headers, or of certain keys, go")
    ] = []
    mirrors: Annotated[
        dict[str, MirrorSettings],
        Meta(description="models whose requests are also sent to another one, so that the answers can be compared"),
    ] = {}
    session: Annotated[
        list[Annotated[str, Meta(pattern="^(header|body):.", description="`header:NAME` or `body:FIELD`")]],
        Meta(description="where to look for the session of a request: `header:NAME` or `body:FIELD`, in this order"),
    ] = field(default_factory=lambda: ["header:x-session-id", "body:prompt_cache_key", "body:user"])
    max_retries: Annotated[Count, Meta(description="most retries of a request, before the first byte of an answer")] = 2
    retry_budget: Annotated[
        Share,
        Meta(
            description="most retries, hedges and continuations together, as a share of the requests of the last 10 s; "
            "100 in 10 s are always allowed"
        ),
    ] = 0.1
    shed_after: Annotated[
        Duration,
        Meta(
            description="expected wait above which requests are refused (429 `overloaded`), those with the lowest "
            "priority first; `0` never"
        ),
    ] = 0.0
    hedge_after: Annotated[
        str,
        Meta(
            description="time without a first byte after which a stream is also asked of another replica: a duration, "
            "or `p50` to `p99` of the model's recent times; or `off`"
        ),
    ] = OFF
    broken_stream: Annotated[
        BrokenStreamRule,
        Meta(
            description="when an engine breaks a stream: `continue` it on another one; or `restart` it there, and skip "
            "the part that the client has; or send an `error`. Each falls back to the next"
        ),
    ] = "continue"
    max_continuations: Annotated[Count, Meta(description="most continuations of one stream after breaks")] = 3
    gather: Annotated[
        bool,
        Meta(
            description="ask engines for streams where the client did not, and gather the answers, so that these "
            "survive their engine too"
        ),
    ] = False
    answer_model: Annotated[
        Literal["asked", "engine"],
        Meta(
            description="the `model` in answers: the name that the client `asked` for, or what the `engine` says where "
            "that has another name for the model"
        ),
    ] = "asked"
    weights: WeightSettings = WeightSettings()
    filters: Annotated[
        list[str] | None, Meta(description="filters to run, in order; all installed ones by default")
    ] = None
    error_share: Annotated[
        Share | None,
        Meta(
            description="largest share of bad answers in the last two minutes, from 0 to 1, with which a backend still "
            "gets requests where another one is left; off by default"
        ),
    ] = None
    scorers: Annotated[list[ScorerSettings], Meta(description="scorers of `weighted` and of plugins' strategies")] = []
    aliases: Annotated[
        dict[str, AliasSettings],
        Meta(
            description="other names of models, or patterns such as `claude-*`: a model, several in order, tables with "
            "`to` and `weight`, or `to` and `prefer`; an alias of an alias is not resolved"
        ),
    ] = {}
    least_tier: Annotated[
        dict[str, Positive],
        Meta(description="least `tier` of the backends for models that clients name (or patterns), fallbacks included"),
    ] = {}
    fallbacks: Annotated[
        dict[str, list[str]], Meta(description="models to try, in order, if a model cannot serve")
    ] = {}
