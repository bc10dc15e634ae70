"""Who may use the gateway, what they have used, and what it costs: [auth], [usage] and [prices]."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Literal

from msgspec import Meta, field

from enginehouse.config.section import Count, Duration, SecretText, Section, about

NAMESPACES = ("key/", "jwt/", "address/")
"""The beginnings of names that the gateway gives to callers, so no key may have such a name."""
Budget = Annotated[float, Meta(ge=0)]
Price = Annotated[float, Meta(ge=0)]


class LimitAmounts(Section, frozen=True):
    """How much may be used. 0 means no limit."""

    requests_per_minute: Annotated[Count, about("limit of requests per minute")] = 0
    tokens_per_minute: Annotated[Count, about("limit of tokens of prompts and answers per minute")] = 0
    tokens_per_day: Annotated[Count, about("limit of tokens of prompts and answers per day, in UTC")] = 0
    budget_per_day: Annotated[Budget, about("limit of costs per day, in the currency of `[prices]`")] = 0
    budget_per_month: Annotated[Budget, about("limit of costs per month")] = 0
    max_concurrent: Annotated[Count, about("limit of concurrent requests")] = 0


class KeyLimitSettings(LimitAmounts, frozen=True):
    """Limits of a key for some models, or for each of its end users. They hold besides the key's own."""

    models: Annotated[list[str], about("models that count; `*` and `?` match as in a shell")] = field(
        default_factory=lambda: ["*"]
    )
    per: Annotated[
        Literal["key", "user"],
        about("`user`: each end user that bodies name has these limits; requests that name none share them"),
    ] = "key"


class KeySettings(LimitAmounts, frozen=True, kw_only=True):
    """One client's API key. A limit of 0 means no limit."""

    name: Annotated[str, about("name of the key in logs and metrics")]
    key: Annotated[SecretText, about('the secret itself, `"env:NAME"` or `"file:PATH"`')]
    models: Annotated[list[str], about("models that the key may use; `*` and `?` match as in a shell")] = field(
        default_factory=lambda: ["*"]
    )
    admin: Annotated[bool, about("whether the key may use operators' pages, such as `/api`")] = False
    gateway: Annotated[
        bool, about("whether another gateway has the key: its requests then say whose they are, and their priority")
    ] = False
    limits: Annotated[list[KeyLimitSettings], about("further limits: for some models, or for end users")] = []
    expires: Annotated[
        str, about("date or time in ISO 8601 from which on the key is refused, in UTC unless it says so")
    ] = ""
    priority: Annotated[
        int, about("added to the queue priority of its requests; engines that order requests by priority get it")
    ] = 0
    weight: Annotated[
        float, about("its share of engines under the scheduler `fair`, relative to other keys", ge=0.001, le=1000)
    ] = 1.0
    ttft_objective: Annotated[
        Duration,
        about(
            "how long its requests may wait; those that cannot be served in time are refused (429 "
            "`deadline`), unless `x-enginehouse-deadline` says otherwise; `0` means no limit"
        ),
    ] = 0.0


class JwtSettings(LimitAmounts, frozen=True, kw_only=True):
    """Tokens (JWT) of an identity provider, accepted like keys. The limits are those of each subject."""

    issuer: Annotated[str, about("issuer of the tokens, their claim `iss`")]
    audience: Annotated[str, about("the gateway's name there, which the claim `aud` must have")]
    jwks_url: Annotated[
        str, about("address of the issuer's public keys; by default, what its OpenID configuration says")
    ] = ""
    name_claim: Annotated[str, about("claim with the name of the caller")] = "sub"
    models_claim: Annotated[
        str, about("claim with the models that the caller may use, a list of patterns; all by default")
    ] = ""
    admin_claim: Annotated[
        str, about("claim that makes an operator: `NAME` that is true, or `NAME=VALUE` that is or has the value")
    ] = ""


class AuthSettings(Section, frozen=True):
    """The keys of clients. Without keys, every client that can reach the gateway may use it."""

    keys: Annotated[list[KeySettings], about("one table for each key")] = []
    jwt: Annotated[
        JwtSettings | None, about("tokens of an identity provider; needs `pip install enginehouse[jwt]`")
    ] = None
    hash_users: Annotated[
        bool,
        about(
            "show a hash instead of the end user that a body names (`user`, `safety_identifier`, `metadata.user_id`)"
        ),
    ] = False

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys, or an empty one if none are set."""
        return tuple(key.name for key in self.keys) or ("",)


def moment(text: str) -> float:
    """The seconds since the epoch of a date or time in ISO 8601, in UTC by default. Raises ``ValueError``."""
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


class UsageSettings(Section, frozen=True):
    """Where the gateway keeps what callers have used, and what operators have done."""

    store: Annotated[str, about("`sqlite`, `none` or a plugin's; by default `sqlite` if keys are set, else `none`")] = (
        ""
    )
    ask_streams: Annotated[
        bool,
        about(
            "ask engines for the usage of streams whose clients do not (`stream_options`); the clients do not see it"
        ),
    ] = True
    keep: Annotated[Duration, about("age at which it is dropped; 0 for never")] = 400 * 86400


class PriceSettings(Section, frozen=True):
    """The price of a million tokens of a model, in any currency."""

    input: Annotated[Price, about("of prompts")] = 0.0
    cached: Annotated[
        Price | None, about("of the part of prompts that was in an engine's cache; by default as `input`")
    ] = None
    output: Annotated[Price, about("of answers")] = 0.0

    def cost(self, tokens_in: float, tokens_cached: float, tokens_out: float) -> float:
        """The price of so many tokens; ``tokens_cached`` are some of ``tokens_in``."""
        cached = self.input if self.cached is None else self.cached
        return ((tokens_in - tokens_cached) * self.input + tokens_cached * cached + tokens_out * self.output) / 1e6
