"""The entries of models and aliases, as OpenAI and as Anthropic have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enginehouse import Candidate, Capabilities, Health, ReplicaState, RequestError
from enginehouse.callers import AdmittedCaller
from enginehouse.errors import ModelNotFound
from enginehouse.pages import PageFacts, json_response

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
_MESSAGES = "/v1/messages"
_CAPABILITIES = ("vision", "tools", "json_mode", "embeddings")


class ModelEntries:
    """The entries that the sender of ``request`` may use. Raises ``Unauthorized``.

    ``caller``: the name of the sender's key; empty if no keys are set.
    """

    def __init__(self, request: Request) -> None:
        self._facts: PageFacts = request.app.state.facts
        self._sender: AdmittedCaller | None = self._facts.sender(request.headers.raw)
        self.caller = "" if self._sender is None else self._sender.name
        self._models, self._settings = self._facts.models(), self._facts.table("models")
        self._files = self._facts.model_facts()

    def listed(self) -> list[dict[str, Any]]:
        """Those of models that are listed, and of their aliases."""
        unlisted = {name for name, settings in self._settings.items() if settings.unlisted}
        return [card for card in self._all().values() if unlisted.isdisjoint((card["id"], card["root"]))]

    def one(self, name: str) -> dict[str, Any]:
        """That of one name, also of one that a pattern stands for. Raises ``ModelNotFound`` or ``NoHealthyBackend``."""
        cards = self._all()
        if (card := cards.get(name)) is not None:
            return card
        if self._facts.aliases().find(name) is None or not self._may_use(name) or not (found := self._of_alias(name)):
            raise self.unknown(name, list(cards.values()))
        return found

    def unknown(self, name: str, others: Sequence[Mapping[str, Any]]) -> RequestError:
        """The error for a model that no backend has, or has listed yet. ``others``: entries of the list."""
        error = self._facts.unknown_model(name)
        if isinstance(error, ModelNotFound):
            error.suggest([card["id"] for card in others])
        return error

    def _may_use(self, name: str) -> bool:
        return self._sender is None or self._sender.may_use(name)

    def _all(self) -> dict[str, dict[str, Any]]:
        cards = {name: self._card(name, candidates) for name, candidates in self._models.items()}
        for name in self._facts.aliases().named:
            if name not in cards and (card := self._of_alias(name)):
                cards[name] = card
        return {name: card for name, card in cards.items() if self._may_use(name)}

    def _of_alias(self, name: str) -> dict[str, Any] | None:
        alias = self._facts.aliases().find(name)
        target = next((each for each in alias.targets if each in self._models), None) if alias is not None else None
        return None if target is None else self._card(name, self._models[target]) | {"root": target}

    def _card(self, name: str, candidates: Sequence[Candidate]) -> dict[str, Any]:
        had = [candidate.capabilities for candidate in candidates]
        lengths = [each.context_length for each in had if each.context_length is not None]
        card = {"id": name, "object": "model", "created": int(self._facts.since), "owned_by": "enginehouse"}
        card |= {"root": name, "status": {"value": _status(candidates)}, "capabilities": _known(had)}
        if (settings := self._settings.get(name)) is not None:
            texts = {"name": settings.name, "description": settings.description}
            card |= {key: text for key, text in texts.items() if text}
            if settings.metadata:
                card["meta"] = settings.metadata
        if (file := self._files.get(candidates[0].model)) is not None:
            card |= {"quantization": file.quantization} if file.quantization else {}
            card |= {"size": file.size} if file.size else {}
        return card | {"max_model_len": max(lengths)} if lengths else card


async def _list(request: Request) -> Response:
    """``GET /v1/models``."""
    if _ANTHROPIC in request.headers:
        return _for_anthropics(request, lambda: _anthropic(ModelEntries(request).listed()))
    return json_response({"object": "list", "data": ModelEntries(request).listed()})


async def _one(request: Request) -> Response:
    """``GET /v1/models/{id}``."""
    name = request.path_params["id"]
    if _ANTHROPIC in request.headers:
        return _for_anthropics(request, lambda: _anthropic_model(ModelEntries(request).one(name)))
    return json_response(ModelEntries(request).one(name))


def _for_anthropics(request: Request, answer: Callable[[], Mapping[str, Any]]) -> Response:
    """The answer to Anthropic's clients. They read errors as those of their messages."""
    try:
        return json_response(answer())
    except RequestError as error:
        form = next((each for each in request.app.state.facts.protocols() if _MESSAGES in each.paths), None)
        if form is None:
            raise
        return Response(form.error(error.status, error.envelope()), error.status, media_type="application/json")


def _anthropic(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ids = [card["id"] for card in cards] or [None]
    models = [_anthropic_model(card) for card in cards]
    return {"data": models, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


def _anthropic_model(card: Mapping[str, Any]) -> dict[str, Any]:
    since = datetime.fromtimestamp(card["created"], timezone.utc).isoformat()
    return {
        "type": "model",
        "id": card["id"],
        "display_name": card.get("name", card["id"]),
        "created_at": since,
        "lifecycle": "active",
        "max_input_tokens": card.get("max_model_len"),
    }


def _known(had: Sequence[Capabilities]) -> dict[str, bool]:
    """The capabilities of which something is known: whether one of the replicas has each."""
    said = {name: {getattr(each, name) for each in had} for name in _CAPABILITIES}
    return {name: True in values for name, values in said.items() if values != {None}}


def _status(candidates: Sequence[Candidate]) -> str:
    """The state of a model, in the words of llama-server's router. One that no engine can serve now is not loaded."""
    states = {each.state for each in candidates if each.health is not Health.UNHEALTHY}
    return next((word for state, word in _WORDS.items() if state in states), "unloaded")


ROUTES = (Route("/v1/models", _list), Route("/v1/models/{id:path}", _one))
