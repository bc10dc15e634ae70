"""The driver of the engines of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from enginehouse import (
    CannotContinue,
    Capabilities,
    Continuation,
    Driver,
    EngineClient,
    InstanceMetadata,
    InstanceStatus,
    PartialAnswer,
    ServedModel,
    StreamTraits,
    SupportsBootstrap,
    SupportsContinuation,
    SupportsFigures,
    add_field,
    read_json,
)

MODELS = "/played/models"
STATUS = "/played/status"


class PlayedModels(msgspec.Struct, frozen=True):
    """The constant facts of an engine. ``concurrency``: how many requests it works on at once."""

    models: Sequence[str]
    context_length: int
    concurrency: int


class PlayedFigures(msgspec.Struct, frozen=True):
    """The figures of an engine for rescheduling."""

    status: InstanceStatus
    metadata: InstanceMetadata


class PlayedDriver(Driver, SupportsFigures, SupportsContinuation):
    """Asks the engines of a replay, whatever kind they stand for. Streams are continued by their tokens."""

    streams = StreamTraits(added=("token_ids",), caches_prefixes=True)

    async def healthy(self, engine: EngineClient) -> bool:
        return (await engine.request("GET", MODELS)).status == 200

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        facts = await _facts(engine)
        return [ServedModel(name, Capabilities(context_length=facts.context_length)) for name in facts.models]

    async def concurrency(self, engine: EngineClient) -> int | None:
        return (await _facts(engine)).concurrency

    async def status(self, engine: EngineClient) -> InstanceStatus:
        return read_json(await engine.request("GET", STATUS), PlayedFigures).status

    async def metadata(self, engine: EngineClient) -> InstanceMetadata:
        return read_json(await engine.request("GET", STATUS), PlayedFigures).metadata

    def continuable(self, path: str, body: bytes) -> bytes:
        return add_field(body, "return_token_ids", b"true")

    def continuation(self, answer: PartialAnswer) -> Continuation:
        if answer.ids is None:
            raise CannotContinue("Streams of a replay are continued by their tokens only")
        fields: dict[str, Any] = msgspec.json.decode(answer.body)
        fields |= {
            "prompt": [*fields["prompt"], *answer.ids],
            "max_tokens": fields["max_tokens"] - len(answer.ids),
            "return_token_ids": True,
        }
        body = msgspec.json.encode(fields)
        return Continuation(path=answer.path, body=body, tokens=len(answer.ids), skip=answer.skip, exact=True)

    def following(self, continuation: Continuation, request: str) -> Continuation:
        body = add_field(continuation.body, "follows", msgspec.json.encode(request))
        return msgspec.structs.replace(continuation, body=body)


class PlayedBootstrapDriver(PlayedDriver, SupportsBootstrap):
    """The same for engines of which two get a request at the same time."""

    def __init__(self) -> None:
        self._rooms = count()

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        return None

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        return add_field(body, "kv_transfer_params", b'{"room":"pair-%d"}' % next(self._rooms))


async def _facts(engine: EngineClient) -> PlayedModels:
    return read_json(await engine.request("GET", MODELS), PlayedModels)
