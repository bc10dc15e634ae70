"""``GET /v1/models``: every model that a client can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.doors.admission import Admission
from enginehouse.api.errors import json_response
from enginehouse.api.keys import KeyHolder
from enginehouse.domain.errors import ModelNotFound
from enginehouse.domain.replica import Candidate


class ModelList:
    """Lists the fleet's models and their aliases, as far as the caller may use them.

    ``aliases`` returns the current aliases. ``since`` is the start of the gateway, in seconds since the epoch.
    """

    def __init__(self, admission: Admission, aliases: Callable[[], Mapping[str, str]], since: int) -> None:
        self._admission = admission
        self._aliases = aliases
        self._since = since

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/v1/models", self.all), Route("/v1/models/{id:path}", self.one)]

    async def all(self, request: Request) -> Response:
        """``GET /v1/models``."""
        holder = self._admission.keyring.caller(request.headers.raw)
        return json_response({"object": "list", "data": list(self._listed(holder).values())})

    async def one(self, request: Request) -> Response:
        """``GET /v1/models/{id}``."""
        holder = self._admission.keyring.caller(request.headers.raw)
        wanted = request.path_params["id"]
        card = self._listed(holder).get(wanted)
        if card is None:
            raise ModelNotFound(wanted)
        return json_response(card)

    def _listed(self, holder: KeyHolder | None) -> dict[str, dict[str, Any]]:
        models = self._admission.relay.context.fleet.snapshot.models
        cards = {name: self._card(name, candidates) for name, candidates in models.items()}
        for alias, target in self._aliases().items():
            if target in models and alias not in models:
                cards[alias] = self._card(alias, models[target]) | {"root": target}
        return {name: card for name, card in cards.items() if holder is None or holder.may_use(name)}

    def _card(self, name: str, candidates: Sequence[Candidate]) -> dict[str, Any]:
        lengths = [c.capabilities.context_length for c in candidates if c.capabilities.context_length is not None]
        card = {"id": name, "object": "model", "created": self._since, "owned_by": "enginehouse", "root": name}
        return card | {"max_model_len": max(lengths)} if lengths else card
