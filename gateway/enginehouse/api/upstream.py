"""``/upstream/{model}/...``: everything that the engine of a model offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from enginehouse.api.asgi_door import AsgiDoor, Outbound, headers_of
from enginehouse.api.entrance import Entrance
from enginehouse.api.web_socket_door import AsgiWebSocketDoor
from enginehouse.domain.errors import Forbidden, RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.pass_through import Call

_PREFIX = b"/upstream/"


class Address(NamedTuple):
    """What a path under ``/upstream/`` names: a model, perhaps ``known``, and the path behind it, perhaps none."""

    model: str
    known: bool
    path: str


class UpstreamRoute(BaseRoute):
    """Passes what comes under ``/upstream/`` to engines.

    A path counts as it stands on the wire, where ``%2F`` is no slash. Pages may open WebSockets if the gateway itself
    delivers them or their origin is in ``cors``. ``aliases`` gives those of now.
    """

    def __init__(self, entrance: Entrance, aliases: Callable[[], Mapping[str, str]], cors: Sequence[str]) -> None:
        self._entrance = entrance
        self._aliases = aliases
        self._cors = cors

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Requests and WebSockets of every kind."""
        ours = scope["type"] in ("http", "websocket") and scope.get("raw_path", b"").startswith(_PREFIX)
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one on."""
        address = self._address(scope["raw_path"][len(_PREFIX) :])
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = (address.path or "/") + query.decode("latin-1")
        if scope["type"] == "websocket":
            await self._open(scope, receive, send, Call(address.model, "GET", target))
        elif address.known and not address.path:
            self._entrance.enter_to_engine(headers_of(scope))
            status = 301 if scope["method"] in ("GET", "HEAD") else 308
            location = scope["raw_path"] + b"/" + query
            await RedirectResponse(location.decode("latin-1"), status)(scope, receive, send)
        else:
            await _CallDoor(self._entrance, Call(address.model, scope["method"], target))(scope, receive, send)

    def _address(self, behind: bytes) -> Address:
        """The longest known name that ``behind`` begins with, which may have slashes; else its first segment."""
        models, aliases = self._entrance.relay.fleet.snapshot.models, self._aliases()
        most = 1 + max((name.count("/") for names in (models, aliases) for name in names), default=0)
        segments = behind.split(b"/", most)
        for count in range(most, 0, -1):
            taken = b"/".join(segments[:count])
            name = unquote(taken)
            if name in models or name in aliases:
                return Address(name, True, behind[len(taken) :].decode("latin-1"))
        return Address(name, False, behind[len(taken) :].decode("latin-1"))

    async def _open(self, scope: Scope, receive: Receive, send: Send, call: Call) -> None:
        headers = headers_of(scope)
        relay = self._entrance.relay
        socket = relay.web_socket(scope["path"], headers, call, largest=self._entrance.max_body)
        await receive()  # nothing but that it wants to connect
        door = AsgiWebSocketDoor(scope, receive, send)
        try:
            await socket.run(door, lambda: self._enter(headers))
        except RequestError as error:
            lines = [(b"content-type", b"application/json"), (b"x-request-id", socket.request_id)]
            if error.retry_after is not None:
                lines.append((b"retry-after", b"%d" % error.retry_after))
            await door.refuse(error.status, lines, msgspec.json.encode(error.envelope()))

    def _enter(self, headers: Headers) -> Caller | None:
        """As for any request; but no browser asks whether a page may open a WebSocket, so that is looked at here."""
        named = dict(headers)
        origin = named.get(b"origin", b"").decode("latin-1")
        own = not origin or urlsplit(origin).netloc == named.get(b"host", b"").decode("latin-1")
        if not own and "*" not in self._cors and origin not in self._cors:
            raise Forbidden(f"Pages of {origin} may not open WebSockets here: name it in server.cors")
        return self._entrance.enter_to_engine(headers)


class _CallDoor(AsgiDoor):
    """An ASGI application for one request to an engine."""

    def __init__(self, entrance: Entrance, call: Call) -> None:
        super().__init__(entrance)
        self._call = call

    def _open(self, out: Outbound, scope: Scope, headers: Headers) -> Exchange:
        return self._entrance.relay.pass_through(out, scope["path"], headers, self._call)

    def _enter(self, headers: Headers) -> Caller | None:
        return self._entrance.enter_to_engine(headers)
