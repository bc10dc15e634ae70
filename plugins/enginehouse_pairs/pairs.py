"""Has one engine read the prompt before another one answers, or while it waits for that."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from enginehouse import HandOver, InvalidRequest, RequestError, Route
from enginehouse.drivers import EngineResponse, SupportsBootstrap, add_field
from enginehouse.errors import UpstreamError
from enginehouse.hand_overs import GoOn, PairChoice, PrefillEngine, StreamCheck, stream_form
from enginehouse_kit.added_fields import one_token
from enginehouse_pairs.choosing import route_of

_PARAMETERS: Final = "kv_transfer_params"
"""The field by which one engine hands a prompt over to another one, as vLLM's connectors read it."""
_KEEP: Final = b'{"do_remote_decode":true,"do_remote_prefill":false}'
_WRONG: Final = (400, 413, 422)
"""The answers to a request that another engine would refuse too."""
_LACKING: Final = 501
"""The answer of an engine that lacks what the request needs, which does not count against it."""
_SHOWN: Final = 300
"""How many bytes of an engine's refusal are shown."""


class _PromptAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


class Pairs(HandOver):
    """Asks the engines one after the other, or both at once, as their driver says.

    With ``kv_transfer_params`` they are asked one after the other. If the first one cannot be asked, the other one
    reads the prompt itself: the client notices nothing. Engines that bootstrap are asked at once.
    """

    def __init__(self) -> None:
        self._ports: dict[str, tuple[object, int | None]] = {}
        """The process and the bootstrap port of each backend."""

    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        return route_of(choice, failed)

    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        assert route.prefill is not None
        backend, drivers = route.prefill.backend, prefill.drivers
        either = drivers.get(backend) or drivers.get(route.chosen.backend)  # a reload may have removed one of them
        if either is None or either.bootstrap is None:
            parameters = await _read_prompt(prefill, body)
            return (body if parameters is None else add_field(body, _PARAMETERS, bytes(parameters))), None
        await prefill.take()
        try:
            port = await self._port(prefill, backend, either.bootstrap)
        except UpstreamError as error:
            prefill.failed(error.message)
            raise
        body = either.bootstrap.bootstrap(body, prefill.host, port)
        return body, partial(self._read_for_another, prefill, backend, body)

    async def _port(self, prefill: PrefillEngine, backend: str, driver: SupportsBootstrap) -> int | None:
        """The bootstrap port of the process behind ``backend``. Raises as ``SupportsBootstrap.bootstrap_port``."""
        process, port = self._ports.get(backend, (None, None))
        if process is not prefill.process:
            port = await driver.bootstrap_port(prefill.client)
            known = {name: said for name, said in self._ports.items() if name in prefill.drivers}
            self._ports = {**known, backend: (prefill.process, port)}
        return port

    async def _read_for_another(self, prefill: PrefillEngine, backend: str, body: bytes) -> None:
        """Have the engine read the prompt. Its answer has no use, unless it is a refusal, which is raised."""
        try:
            response = await prefill.ask(body)
        except RequestError:
            self._ports.pop(backend, None)
            raise
        problem = _refusal(prefill.path, response)
        if problem is None:
            return
        why, is_wrong = problem
        error = f"Backend '{backend}' {why}"
        if is_wrong:
            raise InvalidRequest(error)
        self._ports.pop(backend, None)
        if response.status not in (429, _LACKING):
            prefill.failed(why)
        raise UpstreamError(error)


async def _read_prompt(prefill: PrefillEngine, body: bytes) -> msgspec.Raw | None:
    """Have the engine read the prompt; returns the parameters for the other engine, if it gives any."""
    try:
        await prefill.take()
        response = await prefill.ask(add_field(one_token(body), _PARAMETERS, _KEEP))
    except RequestError:
        return None
    if response.status >= 500 and response.status != _LACKING:
        prefill.failed(f"answered {response.status} to the prompt")
    return _handed_over(response.body) if response.status == 200 else None


def _handed_over(answer: bytes) -> msgspec.Raw | None:
    """The parameters in the ``answer`` of the engine that has read the prompt; ``None`` without any."""
    try:
        parameters = msgspec.json.decode(answer, type=_PromptAnswer).kv_transfer_params
    except (ValueError, RecursionError):
        return None
    return None if bytes(parameters) == b"null" else parameters.copy()


def _refusal(path: str, response: EngineResponse) -> tuple[str, bool] | None:
    """Why an engine did not read a prompt, and whether the request is at fault; ``None`` if it has read it."""
    if response.status != 200:
        shown = response.body[:_SHOWN].decode(errors="replace")
        return f"answered {response.status} to the prompt: {shown}", response.status in _WRONG
    if not response.body.startswith(b"data:"):
        return None
    broken = StreamCheck(stream_form(path)).look(response.body)
    return None if broken is None else (broken.why, bool(broken.blamed))
