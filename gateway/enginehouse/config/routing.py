"""The tables [routing] of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, field

from enginehouse.config.section import BrokenStreamRule, Count, Duration, Positive, Section, Share, about
from enginehouse.config.units import parse_duration

_MOST_REMEMBERED: Final = 1000
"""Names, most of which clients made up, whose pattern is remembered."""
_Percent = Annotated[int, Meta(ge=0, le=100)]
OFF = "off"
"""The ``hedge_after`` of a gateway that asks no second replica."""


class AliasTarget(Section, frozen=True):
    """A model that an alias stands for, or several."""

    to: Annotated[str | list[str], about("the model, or several in order")]
    weight: Annotated[float, about("share of the requests, relative to the other targets", gt=0)] = 1
    prefer: Annotated[
        Literal["order", "loaded", "free"],
        about("which of several is tried first: the first one, a loaded one, or a loaded one with a free slot"),
    ] = "order"


AliasSettings = str | list[str | AliasTarget] | AliasTarget


class Alias(NamedTuple):
    """The models that an alias stands for. ``weights``: one for each, or none."""

    targets: tuple[str, ...]
    weights: tuple[float, ...] = ()
    prefer: str = "order"


class Aliases:
    """All aliases. A name may be a pattern such as ``claude-*``; of several that match, the longest text wins.

    ``named``: those without patterns.
    """

    __slots__ = ("_matching", "_patterns", "named")

    def __init__(self, settings: Mapping[str, AliasSettings]) -> None:
        read = {name: read_alias(each) for name, each in settings.items()}
        self.named = {name: alias for name, alias in read.items() if "*" not in name}
        patterns = [(name, alias) for name, alias in read.items() if "*" in name]
        self._patterns = sorted(patterns, key=lambda each: -len(each[0].replace("*", "")))
        self._matching = lru_cache(_MOST_REMEMBERED)(partial(_first_match, self._patterns))

    def find(self, name: str) -> Alias | None:
        """What ``name`` stands for."""
        found = self.named.get(name)
        return found if found is not None or not self._patterns else self._matching(name)

    def targets(self, name: str) -> tuple[str, ...]:
        """The models that ``name`` stands for; none if it is no alias."""
        found = self.find(name)
        return found.targets if found is not None else ()


def _first_match(patterns: Sequence[tuple[str, Alias]], name: str) -> Alias | None:
    return next((alias for pattern, alias in patterns if fnmatchcase(name, pattern)), None)


def read_alias(settings: AliasSettings) -> Alias:
    """The targets of one alias, however they are written."""
    targets = settings if isinstance(settings, list) else [settings]
    pairs = [pair for target in targets for pair in _pairs(target)]
    names, weights = tuple(name for name, _ in pairs), tuple(weight for _, weight in pairs)
    written = [target for target in targets if isinstance(target, AliasTarget)]
    prefer = next((target.prefer for target in written if target.prefer != "order"), "order")
    return Alias(names, weights if len(written) > 1 else (), prefer)


def _pairs(target: str | AliasTarget) -> Iterator[tuple[str, float]]:
    """The models of one target, with their weights."""
    if isinstance(target, str):
        yield target, 1
    else:
        names = [target.to] if isinstance(target.to, str) else target.to
        yield from ((name, target.weight) for name in names)


class WeightSettings(Section, frozen=True):
    """The weights of the `smart` strategy. They must sum to 100."""

    priority: Annotated[_Percent, about("weight of the backend's `priority`")] = 50
    load: Annotated[_Percent, about("weight of the backend's live requests")] = 30
    latency: Annotated[_Percent, about("weight of the backend's average latency")] = 20


class ScorerSettings(Section, frozen=True):
    """One scorer of the `weighted` strategy."""

    type: Annotated[str, about("a registered scorer")]
    name: Annotated[str, about("name of this instance; defaults to the type")] = ""
    weight: Annotated[Positive, about("relative to the other scorers")] = 1
    parameters: Annotated[dict[str, Any], about("parameters of the scorer")] = {}


class RuleSettings(Section, frozen=True):
    """Where requests with a header, or of a key, go. Of several rules that match, the first one counts."""

    header: Annotated[
        str, about("matches requests with it, such as `x-tier: gold`", pattern=r"^$|^[A-Za-z0-9-]+: *\S")
    ] = ""
    key: Annotated[str, about("matches requests of the key with this name; `*` matches as in a shell")] = ""
    model: Annotated[str, about("the model that serves them, whatever they ask for")] = ""
    backends: Annotated[list[str], about("the backends that serve them; `*` and `?` match as in a shell")] = []
    strategy: Annotated[str, about("the strategy that picks their replica")] = ""
    weight: Annotated[
        Share,
        about(
            "share of the matching requests that the rule takes; the others avoid its backends. With `1` "
            "no other backend may serve them, with less any other one where these cannot"
        ),
    ] = 1.0


class MirrorSettings(Section, frozen=True):
    """Another model that gets copies of the requests for one. Clients never see its answers."""

    to: Annotated[str, about("the model that gets the copies", min_length=1)]
    share: Annotated[Share, about("share of the requests that are copied")] = 1.0


class RoutingSettings(Section, frozen=True):
    """How the gateway chooses the replica for a request."""

    strategy: Annotated[
        str,
        about(
            "`cache_aware`, `least_pending`, `p2c`, `session`, `smart`, `round_robin`, `priority_only`, "
            "`random`, `weighted` or a plugin's"
        ),
    ] = "cache_aware"
    strategies: Annotated[dict[str, str], about("other strategies for single models")] = {}
    rules: Annotated[list[RuleSettings], about("where requests with certain headers, or of certain keys, go")] = []
    mirrors: Annotated[
        dict[str, MirrorSettings],
        about("models whose requests are also sent to another one, so that the answers can be compared"),
    ] = {}
    session: Annotated[
        list[Annotated[str, about("`header:NAME` or `body:FIELD`", pattern="^(header|body):.")]],
        about("where to look for the session of a request: `header:NAME` or `body:FIELD`, in this order"),
    ] = field(default_factory=lambda: ["header:x-session-id", "body:prompt_cache_key", "body:user"])
    max_retries: Annotated[Count, about("most retries of a request, before the first byte of an answer")] = 2
    retry_budget: Annotated[
        Share,
        about(
            "most retries, hedges and continuations together, as a share of the requests of the last 10 s; "
            "100 in 10 s are always allowed"
        ),
    ] = 0.1
    shed_after: Annotated[
        Duration,
        about(
            "expected wait above which requests are refused (429 `overloaded`), those with the lowest "
            "priority first; `0` never"
        ),
    ] = 0.0
    hedge_after: Annotated[
        str,
        about(
            "time without a first byte after which a stream is also asked of another replica: a duration, "
            "or `p50` to `p99` of the model's recent times; or `off`"
        ),
    ] = OFF
    broken_stream: Annotated[
        BrokenStreamRule,
        about(
            "when an engine breaks a stream: `continue` it on another one; or `restart` it there, and skip "
            "the part that the client has; or send an `error`. Each falls back to the next"
        ),
    ] = "continue"
    max_continuations: Annotated[Count, about("most continuations of one stream after breaks")] = 3
    gather: Annotated[
        bool,
        about(
            "ask engines for streams where the client did not, and gather the answers, so that these "
            "survive their engine too"
        ),
    ] = False
    answer_model: Annotated[
        Literal["asked", "engine"],
        about(
            "the `model` in answers: the name that the client `asked` for, or what the `engine` says where "
            "that has another name for the model"
        ),
    ] = "asked"
    weights: WeightSettings = WeightSettings()
    filters: Annotated[list[str] | None, about("filters to run, in order; all installed ones by default")] = None
    error_share: Annotated[
        Share | None,
        about(
            "largest share of bad answers in the last two minutes, from 0 to 1, with which a backend still "
            "gets requests where another one is left; off by default"
        ),
    ] = None
    scorers: Annotated[list[ScorerSettings], about("scorers of `weighted` and of plugins' strategies")] = []
    aliases: Annotated[
        dict[str, AliasSettings],
        about(
            "other names of models, or patterns such as `claude-*`: a model, several in order, tables with "
            "`to` and `weight`, or `to` and `prefer`; an alias of an alias is not resolved"
        ),
    ] = {}
    least_tier: Annotated[
        dict[str, Positive],
        about("least `tier` of the backends for models that clients name (or patterns), fallbacks included"),
    ] = {}
    fallbacks: Annotated[dict[str, list[str]], about("models to try, in order, if a model cannot serve")] = {}


class HedgeAfter(NamedTuple):
    """The time without a first byte after which a second replica gets the request too.

    ``percentile``: of recent times to the first byte, from 50 to 99; or 0, and then ``seconds``.
    """

    percentile: int
    seconds: float


def parse_hedge_after(text: str) -> HedgeAfter | None:
    """The meaning of ``text``, ``None`` for ``off``. Raises ``ValueError``."""
    if text == OFF:
        return None
    if text[:1] == "p" and text[1:].isascii() and text[1:].isdecimal() and 50 <= int(text[1:]) <= 99:
        return HedgeAfter(int(text[1:]), 0.0)
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise ValueError(
            f'expected "off", a percentile such as "p95" (p50 to p99) or a duration such as "2s", got "{text}"'
        )
    return HedgeAfter(0, seconds)
