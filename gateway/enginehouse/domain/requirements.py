"""A client's request, as plugins see it, and its requirements. Compiled: every step of a request reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from enginehouse.domain.explanation import RuleEffects
from enginehouse.domain.request import Body, Headers


class InferenceRequest:
    """A request, as extractors see it.

    ``path`` is the endpoint, such as ``/v1/chat/completions``; ``raw`` is the body as received, ``body`` its decoded
    fields.
    """

    __slots__ = ("_json", "body", "headers", "path", "raw")

    def __init__(self, path: str, headers: Headers, raw: bytes, body: Body) -> None:
        self.path = path
        self.headers = headers
        self.raw = raw
        self.body = body
        self._json: dict[str, Any] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header ``name``, which must be in lower case; ``None`` if there is none."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def json(self) -> dict[str, Any]:
        """The whole body, for fields that ``Body`` does not have. Decoded on first use."""
        if self._json is None:
            self._json = msgspec.json.decode(self.raw)
        return self._json


@dataclass(init=False)
class Requirements:
    """The requirements of one request. Extractors write them; filters, scorers and strategies read them."""

    model: str
    """The model that the client asked for; an alias is not resolved."""
    path: str
    """The endpoint."""
    stream: bool
    estimated_tokens: int
    """Prompt tokens, estimated as one per four characters of text."""
    needs_vision: bool
    needs_tools: bool
    needs_json_mode: bool
    caller: str | None
    """The name of the caller's key. The gateway sets it when the extractors have run."""
    user: str | None
    """The end user that the body names, or a hash of the name (``auth.hash_users``). Set at the same time."""
    zones: tuple[str, ...]
    """The privacy zones that it must not leave. The gateway sets them with the caller."""
    rule_effects: RuleEffects | None
    """What the rules say of it; ``None`` if no rule matches. The gateway sets it with the caller."""
    session: str
    """The session that it belongs to, as ``routing.session`` says; found only if a strategy has ``reads_session``."""
    extra: dict[str, Any]
    """Values of plugins. Begin each key with the name of your plugin."""

    def __init__(
        self,
        model: str,
        path: str = "/v1/chat/completions",
        stream: bool = False,
        estimated_tokens: int = 0,
        needs_vision: bool = False,
        needs_tools: bool = False,
        needs_json_mode: bool = False,
        caller: str | None = None,
        user: str | None = None,
        zones: tuple[str, ...] = (),
        rule_effects: RuleEffects | None = None,
        session: str = "",
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.path = path
        self.stream = stream
        self.estimated_tokens = estimated_tokens
        self.needs_vision = needs_vision
        self.needs_tools = needs_tools
        self.needs_json_mode = needs_json_mode
        self.caller = caller
        self.user = user
        self.zones = zones
        self.rule_effects = rule_effects
        self.session = session
        self.extra = {} if extra is None else extra

    def __reduce__(self) -> tuple[Any, ...]:
        """How copies are made: a compiled class has no other way."""
        return Requirements, tuple([getattr(self, each.name) for each in fields(self)])

    def at(self, model: str) -> Requirements:
        """Those of the same request where ``model`` serves it already: no rule leads to another one any more."""
        effects = self.rule_effects
        if effects is not None and effects.model:
            effects = msgspec.structs.replace(effects, model="", spare="")
        return replace(self, model=model, rule_effects=effects)

    def told(self) -> dict[str, Any]:
        """The fields for ``heard`` in another process. Those of plugins may be anything, so they stay in this one."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "extra"}


def heard(told: Mapping[str, Any]) -> Requirements:
    """The requirements of which another process has ``told``. JSON and the like have no types for some fields."""
    effects = msgspec.convert(told["rule_effects"], RuleEffects | None)
    return Requirements(**{**told, "zones": tuple(told["zones"]), "rule_effects": effects})
