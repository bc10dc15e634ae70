"""A request for one model's engine that the gateway does not read."""

from __future__ import annotations

import re
from typing import ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from enginehouse.domain.errors import Forbidden, NotLoaded
from enginehouse.domain.replica import Candidate, ReplicaState, Route, Snapshot
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.health import EngineVerdict, verdict
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job, Suspects
from enginehouse.relay.upstream.outside import Origin
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.read import check_model_name

_PATH: Final = "/:@"
_SANDBOX: Final = b"content-security-policy: sandbox allow-scripts allow-forms allow-popups allow-downloads\r\n"
"""Takes the gateway's origin from a page (CSP 3, 6.3.2): its scripts may not call the gateway, and have no cookies."""
_EXPECT_A_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})  # RFC 9110, 9.2.2


class EngineCall(NamedTuple):
    """A call to the engine of ``model``: ``target`` is a path and perhaps a query, as they stand on the wire.

    ``loads``: the model is loaded for it. ``is_named``: the query names the model.
    """

    model: str
    method: str
    target: str
    loads: bool = True
    is_named: bool = False

    def target_at(self, chosen: Candidate) -> str:
        """The target, with the name that the engine of ``chosen`` has for the model."""
        name = chosen.name_there or chosen.model
        if not self.is_named or name == self.model:
            return self.target
        path, _, query = self.target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        return f"{path}?{urlencode([(key, name if key == 'model' else value) for key, value in pairs])}"


class EngineJob(Job):
    """Passes a call to one model's engine, to no fallback of it, and the answer back.

    A method that is not idempotent is sent once, on a new connection.
    """

    raw = True
    fallbacks = False
    retry_statuses: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, context: RelayContext, path: str, headers: Headers, request_id: bytes, call: EngineCall) -> None:
        super().__init__(context, path, headers, request_id)
        self.call = call
        self.loads = call.loads
        self.method = call.method
        self.repeatable = call.method in _IDEMPOTENT

    def _needs(self, caller: AdmittedCaller | None) -> Requirements:
        check_model_name(self.call.model)
        return Requirements(model=self.call.model, path=self.call.target.partition("?")[0])

    def route(self, failed: tuple[str, ...], *, alone: bool = False) -> Route:
        """Also raises ``NotLoaded``, and ``Forbidden`` if every engine of the model serves a forbidden one too."""
        route = super().route(failed)
        if not self.loads and route.chosen.state is not ReplicaState.READY:
            why = "" if self.call.is_named else " (scheduling.never_load_for)"
            raise NotLoaded(
                f"Model '{self.call.model}' is not loaded, and a request for {self.call.target} does not load it{why}"
            )
        return route

    def _snapshot(self) -> Snapshot:
        snapshot = self.context.fleet.snapshot
        return snapshot if self.caller is None else _AllowedEngines(snapshot, self.caller)

    def body_for(self, route: Route) -> bytes:
        return self.body

    def request(self, upstream: Upstream, body: bytes, path: str = "") -> bytes:
        length = b"content-length: %d\r\n" % len(body) if body or self.method in _EXPECT_A_BODY else b""
        asked = self.method, self.call.target, self.engine_headers, self.request_id
        return upstream.head(*asked, length, self.caller_lines(upstream), encoded=True) + body

    def client_lines(self, lines: bytes, upstream: Upstream) -> bytes:
        """Keeps redirects and cookies of the engine below the path at which the client finds it.

        A page of an engine that others run must not act as one of the gateway's own. A launched engine is a program
        that the operator runs beside the gateway, and its page may be used.
        """
        sandbox = b"" if upstream.launched else _SANDBOX
        return sandbox + lines_below(
            lines, f"/upstream/{quote(self.call.model, safe=_PATH)}".encode(), upstream.pool.origin
        )

    def judge(self, route: Route, status: int, first_byte: float, suspects: Suspects) -> Suspects:
        """Count no error against the backend, because it may be the right answer to such a call."""
        return suspects

    def served(self, route: Route, status: int, suspects: Suspects) -> None:
        if verdict(status) in (EngineVerdict.GOOD, EngineVerdict.REFUSED):
            self.context.fleet.succeeded(route.chosen.backend)


class _AllowedEngines(Snapshot):
    """The part of a snapshot whose engines serve no model that a caller may not use.

    A call is not read, so it may ask for any model that its engine serves.
    """

    def __init__(self, snapshot: Snapshot, caller: AdmittedCaller) -> None:
        super().__init__(unlisted=snapshot.unlisted)
        self._whole = snapshot
        self._caller = caller

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        """Raises ``Forbidden`` if the model has candidates, and none is allowed."""
        known = self._whole.candidates(model)
        forbidden = self._forbidden(model)
        allowed = tuple([candidate for candidate in known if candidate.backend not in forbidden])
        if known and not allowed:
            backend = known[0].backend
            raise Forbidden(
                f"Backend '{backend}' also serves model '{forbidden[backend]}', which this key may not use: "
                "access to the whole engine would include it",
                param="model",
            )
        return allowed

    def _forbidden(self, model: str) -> dict[str, str]:
        """The forbidden backends, each with a model that makes it so; ``model`` itself is allowed."""
        return {
            candidate.backend: other
            for other, candidates in self._whole.models.items()
            if other != model and not self._caller.may_use(other)
            for candidate in candidates
        }


_LINE = re.compile(rb"^(location|set-cookie): ([^\r\n]*)\r\n", re.MULTILINE)


def lines_below(lines: bytes, mount: bytes, origin: Origin) -> bytes:
    """``lines`` with the paths of ``Location`` and ``Set-Cookie`` below ``mount``, where clients find ``origin``.

    A redirect to another server stays as it is. Cookies lose their ``Domain``: they are for this engine alone.
    """
    if b"location: " not in lines and b"set-cookie: " not in lines:
        return lines

    def changed(line: re.Match[bytes]) -> bytes:
        name, value = line[1], line[2]
        value = _location(value, mount, origin) if name == b"location" else _cookie(value, mount, origin)
        return b"%s: %s\r\n" % (name, value)

    return _LINE.sub(changed, lines)


def _location(value: bytes, mount: bytes, origin: Origin) -> bytes:
    here = b"%s://%s" % (b"https" if origin.tls else b"http", origin.authority.encode())
    path = value.removeprefix(here)
    if path == value and (not value.startswith(b"/") or value.startswith(b"//")):
        return value  # relative to the client's own path, or another server
    if path[:1] not in (b"/", b"?", b"#", b""):
        return value  # another port
    return mount + (_below(path, origin) if path.startswith(b"/") else b"/" + path)


def _cookie(value: bytes, mount: bytes, origin: Origin) -> bytes:
    pair, *attributes = value.split(b";")
    kept = [pair]
    for attribute in attributes:
        name, _, path = attribute.strip().partition(b"=")
        if name.lower() == b"path" and path.startswith(b"/"):
            kept.append(b" Path=" + mount + _below(path, origin))
        elif name.lower() not in (b"path", b"domain"):  # without a path, that of the client's request counts
            kept.append(attribute)
    return b";".join(kept)


def _below(path: bytes, origin: Origin) -> bytes:
    """``path`` without the prefix that the gateway adds to every path of this engine."""
    prefix = origin.prefix.encode()
    inside = prefix and (path == prefix or path.startswith(prefix + b"/"))
    return (path[len(prefix) :] or b"/") if inside else path
