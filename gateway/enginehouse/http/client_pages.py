"""The gateway's own pages for clients: models, health, and what protocols answer themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.config.routing import Alias, Aliases
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import BodyTooLarge, ModelNotFound, RequestError, ShuttingDown
from enginehouse.domain.replica import Candidate, Health, ReplicaState
from enginehouse.http.admission import Admission
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import ModelFacts
from enginehouse.interfaces.protocols import ClientProtocol, PageRequest
from enginehouse.interfaces.routes import json_response
from enginehouse.relay.relay import Relay
from enginehouse.routing.refusals import unknown_model

_WORDS = {
    ReplicaState.READY: "loaded",
    ReplicaState.STARTING: "loading",
    ReplicaState.DOWNLOADING: "loading",
    ReplicaState.PLACING: "loading",
    ReplicaState.SLEEPING: "sleeping",
}
"""The best state of a replica first; all other states are ``unloaded``."""
_ANTHROPIC = "anthropic-version"
"""The header that Anthropic's clients send with every request: they get lists in their form."""
_CAPABILITIES = ("vision", "tools", "json_mode", "embeddings")
_LARGEST = 64 * 1024
"""Bytes of a body that is sent to a page of a protocol; these are asked for a name at most."""


class ModelList:
    """Lists the fleet's models and their aliases, as far as the caller may use them.

    ``models`` and ``aliases`` return the current configuration of both, ``facts`` what the files of launched models
    tell. ``since`` is the start of the gateway, in seconds since the epoch.
    """

    def __init__(
        self,
        admission: Admission,
        models: Callable[[], Mapping[str, ModelSettings]],
        aliases: Callable[[], Aliases],
        facts: Callable[[], Mapping[str, ModelFacts]],
        since: int,
    ) -> None:
        self._admission = admission
        self._models = models
        self._aliases = aliases
        self._facts = facts
        self._since = since

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/v1/models", self.all), Route("/v1/models/{id:path}", self.one)]

    async def all(self, request: Request) -> Response:
        """``GET /v1/models``."""
        cards = self.listed(request)
        return json_response(_anthropic(cards) if _ANTHROPIC in request.headers else {"object": "list", "data": cards})

    def listed(self, request: Request) -> list[dict[str, Any]]:
        """The entries that the sender of ``request`` may use. Raises ``Unauthorized``."""
        holder = self._admission.authentication.caller(request.headers.raw)
        unlisted = {name for name, settings in self._models().items() if settings.unlisted}
        return [card for card in self._cards(holder).values() if unlisted.isdisjoint((card["id"], card["root"]))]

    def caller(self, request: Request) -> str:
        """The name of the sender's key; empty if no keys are set. Raises ``Unauthorized``."""
        holder = self._admission.authentication.caller(request.headers.raw)
        return "" if holder is None else holder.name

    async def one(self, request: Request) -> Response:
        """``GET /v1/models/{id}``."""
        holder = self._admission.authentication.caller(request.headers.raw)
        wanted = request.path_params["id"]
        cards = self._cards(holder)
        card = cards.get(wanted) or self._matching(wanted, holder)
        if card is None:
            raise self.unknown(wanted, list(cards.values()))
        return json_response(_anthropic_model(card) if _ANTHROPIC in request.headers else card)

    def unknown(self, model: str, others: Sequence[Mapping[str, Any]]) -> RequestError:
        """The error for a ``model`` that no backend has, or has listed yet. ``others``: entries of the list."""
        error = unknown_model(model, self._admission.relay.context.fleet.snapshot.unlisted)
        if isinstance(error, ModelNotFound):
            error.suggest([card["id"] for card in others])
        return error

    def _matching(self, name: str, holder: AdmittedCaller | None) -> dict[str, Any] | None:
        """The entry of a name that a pattern stands for."""
        alias = self._aliases().find(name)
        if alias is None or not (holder is None or holder.may_use(name)):
            return None
        return self._alias_card(name, alias, self._facts())

    def _cards(self, holder: AdmittedCaller | None) -> dict[str, dict[str, Any]]:
        models, facts = self._admission.relay.context.fleet.snapshot.models, self._facts()
        cards = {name: self._card(name, candidates, facts) for name, candidates in models.items()}
        for name, alias in self._aliases().named.items():
            if name not in models and (card := self._alias_card(name, alias, facts)):
                cards[name] = card
        return {name: card for name, card in cards.items() if holder is None or holder.may_use(name)}

    def _alias_card(self, name: str, alias: Alias, facts: Mapping[str, ModelFacts]) -> dict[str, Any] | None:
        models = self._admission.relay.context.fleet.snapshot.models
        target = next((target for target in alias.targets if target in models), None)
        return None if target is None else self._card(name, models[target], facts) | {"root": target}

    def _card(self, name: str, candidates: Sequence[Candidate], known: Mapping[str, ModelFacts]) -> dict[str, Any]:
        had = [candidate.capabilities for candidate in candidates]
        lengths = [each.context_length for each in had if each.context_length is not None]
        card = {"id": name, "object": "model", "created": self._since, "owned_by": "enginehouse", "root": name}
        card |= {"status": {"value": _status(candidates)}, "capabilities": _known(had)}
        if (settings := self._models().get(name)) is not None:
            texts = {"name": settings.name, "description": settings.description}
            card |= {key: text for key, text in texts.items() if text}
            if settings.metadata:
                card["meta"] = settings.metadata
        if (facts := known.get(candidates[0].model)) is not None:
            card |= {"quantization": facts.quantization} if facts.quantization else {}
            card |= {"size": facts.size} if facts.size else {}
        return card | {"max_model_len": max(lengths)} if lengths else card


def _anthropic(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ids = [card["id"] for card in cards] or [None]
    models = [_anthropic_model(card) for card in cards]
    return {"data": models, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


def _anthropic_model(card: Mapping[str, Any]) -> dict[str, Any]:
    since = datetime.fromtimestamp(card["created"], timezone.utc).isoformat()
    return {"type": "model", "id": card["id"], "display_name": card.get("name", card["id"]), "created_at": since}


def _known(had: Sequence[Capabilities]) -> dict[str, bool]:
    """The capabilities of which something is known: whether one of the replicas has each."""
    said = {name: {getattr(each, name) for each in had} for name in _CAPABILITIES}
    return {name: True in values for name, values in said.items() if values != {None}}


def _status(candidates: Sequence[Candidate]) -> str:
    """The state of a model, in the words of llama-server's router. One that no engine can serve now is not loaded."""
    states = {each.state for each in candidates if each.health is not Health.UNHEALTHY}
    return next((word for state, word in _WORDS.items() if state in states), "unloaded")


def protocol_pages(
    protocols: Sequence[ClientProtocol], models: ModelList, engine: Callable[[str], EngineClient]
) -> Iterator[BaseRoute]:
    """The pages of ``protocols``, made from the entries of ``models`` that the caller may use.

    ``engine``: as in ``PageRequest``.
    """
    for protocol in protocols:
        for method, path in protocol.pages:
            yield Route(path, _Page(protocol, models, engine).answer, methods=[method])


class _Page:
    def __init__(self, protocol: ClientProtocol, models: ModelList, engine: Callable[[str], EngineClient]) -> None:
        self._protocol = protocol
        self._models = models
        self._engine = engine

    async def answer(self, request: Request) -> Response:
        try:
            models, body = self._models.listed(request), await _body(request)
            method = "GET" if request.method == "HEAD" else request.method  # Starlette adds HEAD to each GET
            caller, path = self._models.caller(request), request.url.path
            asked = PageRequest(method, path, request.query_params, body, models, caller, self._engine)
            content, status = await self._protocol.answer_page(asked), 200
        except RequestError as error:
            if isinstance(error, ModelNotFound):
                error = self._models.unknown(error.details["model"], models)
            content, status = self._protocol.error(error.status, error.envelope()), error.status
        return Response(content, status, media_type="application/json")


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST:
            raise BodyTooLarge(f"The request body is larger than {_LARGEST} bytes")
    return body


class HealthPages:
    """Both pages need no key. ``leaving``: the gateway stops soon, so load balancers should send it nothing more."""

    leaving = False

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/health", self.health), Route("/ready", self.ready)]

    async def health(self, request: Request) -> Response:
        """Answer 200 while the process is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Answer 200 while a healthy backend takes requests, else 503.

        Also 503 until the first verdict on each backend: before, a model that it has would be unknown.
        """
        self._relay.check_open()
        if self.leaving:
            raise ShuttingDown("The gateway is about to stop")
        backends = self._relay.context.fleet.backends()
        healthy = sum(backend.health is Health.HEALTHY and not backend.draining for backend in backends)
        unlisted = self._relay.context.fleet.snapshot.unlisted
        awaited = [each.name for each in backends if each.name in unlisted and each.health is Health.UNKNOWN]
        ready = healthy > 0 and not awaited
        facts = {"ready": ready, "healthy_backends": healthy, "backends": len(backends), "awaited": awaited}
        return json_response(facts, 200 if ready else 503)
