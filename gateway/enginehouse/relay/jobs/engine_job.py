"""A request for one model's engine that the gateway does not read."""

from __future__ import annotations

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
from enginehouse.relay.jobs.rebased_lines import lines_below
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.read import check_model_name

_PATH: Final = "/:@"
_SANDBOX: Final = b"content-security-policy: sandbox allow-scripts allow-forms allow-popups allow-downloads\r\n"
"""Takes the gateway's origin from a page (CSP 3, 6.3.2): its scripts may not call the gateway, and have no cookies."""
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

    def route(self, failed: tuple[str, ...]) -> Route:
        """Also raises ``NotLoaded``, and ``Forbidden`` if every engine of the model serves a forbidden one too."""
        route = super().route(failed)
        if not self.loads and route.chosen.state is not ReplicaState.READY:
            raise NotLoaded(
                f"Model '{self.call.model}' is not loaded, and a request for {self.call.target} does not load it "
                "(scheduling.never_load_for)"
            )
        return route

    def _snapshot(self) -> Snapshot:
        snapshot = self.context.fleet.snapshot
        return snapshot if self.caller is None else _AllowedEngines(snapshot, self.caller)

    def body_for(self, route: Route) -> bytes:
        return self.body

    def request(self, upstream: Upstream, body: bytes) -> bytes:
        return upstream.call(self.method, self.call.target, self.engine_headers, self.request_id, body)

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
