"""Direct access to a model's engine: ``/upstream/{model}/...``, and pages such as ``GET /props?model=NAME``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.asgi import AsgiDoor, headers_of
from enginehouse.api.doors.web_socket import AsgiWebSocketDoor
from enginehouse.api.errors import refuse_web_socket
from enginehouse.config.aliases import Aliases
from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller
from enginehouse.relay.jobs.engine_job import EngineCall

_PREFIX = b"/upstream/"
_PAGES = ("/props", "/slots", "/v1/audio/voices", "/sdapi/v1/loras")
"""Pages of an engine about one model, named in the query."""


class Address(NamedTuple):
    """A path below ``/upstream/``: the model, whether it is known, and the rest of the path, which may be empty."""

    model: str
    known: bool
    path: str


class UpstreamRoute(BaseRoute):
    """Passes requests and WebSockets below ``/upstream/`` to engines.

    Paths are read as sent, where ``%2F`` is no slash. ``aliases`` returns the current aliases, ``never_load_for`` the
    patterns of the paths for which no model is loaded.
    """

    def __init__(
        self, admission: Admission, aliases: Callable[[], Aliases], never_load_for: Callable[[], Sequence[str]]
    ) -> None:
        self._admission = admission
        self._aliases = aliases
        self._never_load_for = never_load_for

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] in ("http", "websocket") and scope.get("raw_path", b"").startswith(_PREFIX)
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = self._address(scope["raw_path"][len(_PREFIX) :])
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = (address.path or "/") + query.decode("latin-1")
        if scope["type"] == "websocket":
            call = EngineCall(address.model, "GET", target, self._loads(address.path))
            await self._open(scope, receive, send, call)
        elif address.known and not address.path:
            self._admission.admit_direct(headers_of(scope))
            status = 301 if scope["method"] in ("GET", "HEAD") else 308  # browsers turn a POST that got 301 into a GET
            location = scope["raw_path"] + b"/" + query
            await RedirectResponse(location.decode("latin-1"), status)(scope, receive, send)
        else:
            call = EngineCall(address.model, scope["method"], target, self._loads(address.path))
            await _CallDoor(self._admission, call)(scope, receive, send)

    def _loads(self, path: str) -> bool:
        return not any(re.search(pattern, path) for pattern in self._never_load_for())

    def _address(self, behind: bytes) -> Address:
        """Split ``behind`` after the longest known name, which may have slashes, or else after its first segment."""
        models, aliases = self._admission.relay.context.fleet.snapshot.models, self._aliases()
        most = 1 + max((name.count("/") for names in (models, aliases.named) for name in names), default=0)
        segments = behind.split(b"/", most)
        for count in range(most, 0, -1):
            taken = b"/".join(segments[:count])
            name = unquote(taken)
            if name in models or aliases.find(name) is not None:
                return Address(name, True, behind[len(taken) :].decode("latin-1"))
        return Address(name, False, behind[len(taken) :].decode("latin-1"))

    async def _open(self, scope: Scope, receive: Receive, send: Send, call: EngineCall) -> None:
        headers = headers_of(scope)
        relay = self._admission.relay
        socket = relay.web_socket(scope["path"], headers, call, largest=self._admission.max_body)
        await receive()  # websocket.connect
        door = AsgiWebSocketDoor(scope, receive, send)
        try:
            await socket.run(door, lambda: self._admit(headers, call.target))
        except RequestError as error:
            await refuse_web_socket(door, error, (b"x-request-id", socket.request_id))

    def _admit(self, headers: Headers, target: str) -> Caller | None:
        caller = self._admission.admit_web_socket(headers)
        _check_path(target)
        return caller


def _check_path(target: str) -> None:
    """Refuse a path that an engine's server may take for one outside of the backend's ``url``."""
    path = target.partition("?")[0]
    read = unquote(path, "latin-1")
    above = any(segment.partition(";")[0] == ".." for segment in read.split("/"))
    if above or "//" in path or "\\" in read:
        raise InvalidRequest("A path below /upstream/MODEL/ must not have '..', '//' or a backslash, encoded or not")


class _CallDoor(AsgiDoor):
    """The ASGI door for one request to an engine."""

    def __init__(self, admission: Admission, call: EngineCall) -> None:
        super().__init__(admission, partial(admission.relay.pass_through, call=call))
        self._target = call.target

    def _admit(self, headers: Headers) -> Caller | None:
        caller = self._admission.admit_direct(headers)
        _check_path(self._target)
        return caller


def engine_pages(admission: Admission) -> list[BaseRoute]:
    """Pass requests for ``_PAGES`` to an engine of the model, as below ``/upstream/``. The query goes along."""

    async def page(request: Request) -> _CallDoor:
        model = request.query_params.get("model", "")
        if not model:
            raise InvalidRequest("The query has no 'model': name the model, as in /props?model=NAME", param="model")
        target = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        return _CallDoor(admission, EngineCall(model, "GET", target))

    return [Route(path, page, methods=["GET"]) for path in _PAGES]
