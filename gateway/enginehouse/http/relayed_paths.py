"""The requests that engines answer, besides those for the inference endpoints' plain paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from starlette.routing import compile_path

from enginehouse.config.routing import Aliases
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.http.admission import FORM_PATHS, Admission
from enginehouse.http.inbound import Opens
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.relay.events.stream_form import form_of_protocol, stream_form
from enginehouse.relay.jobs.engine_job import EngineCall, EngineJob
from enginehouse.relay.jobs.form_job import FormJob
from enginehouse.routing.body.form import is_form

_UPSTREAM: Final = b"/upstream/"
ENGINE_PAGES: Final = frozenset({"/props", "/slots", "/v1/audio/voices", "/sdapi/v1/loras"})
"""Pages of an engine about one model, which the query names."""
_PAGE_METHODS: Final = ("GET", "HEAD")
REALTIME: Final = "/v1/realtime"
"""OpenAI's WebSocket for audio, whose query names the model."""
_SMALL: Final = 1 << 20
"""In bytes. A form up to this size is kept until it is answered, so that it can be sent again."""
_MOST_MATCHED: Final = 1024
"""Characters of a path that say which protocol's it is: all of a long one would take milliseconds."""


class Target(NamedTuple):
    """The target of a request: its path as it is meant and as it was sent, and its query."""

    path: str
    raw_path: bytes
    query: bytes


class Relayed(NamedTuple):
    """A request for an engine: ``opens`` makes its exchange, ``admit`` checks its head.

    ``uploads``: it is a form that passes on while it arrives; ``opens`` is not used.
    """

    opens: Opens
    admit: Callable[[Headers], AdmittedCaller | None]
    uploads: bool = False


class UpstreamAddress(NamedTuple):
    """A path below ``/upstream/``: the model, whether it is known, and the rest of the path, which may be empty."""

    model: str
    known: bool
    path: str


class RelayedPaths:
    """Finds out which requests engines answer, and in which form the gateway tells an error.

    ``protocols`` may have paths with parts such as ``{model:path}``. ``aliases`` returns the current aliases,
    ``never_load_for`` the patterns of the paths below ``/upstream/`` for which no model is loaded.
    """

    def __init__(
        self,
        admission: Admission,
        protocols: Collection[ClientProtocol],
        aliases: Callable[[], Aliases],
        never_load_for: Callable[[], Sequence[str]],
    ) -> None:
        self._admission = admission
        self._patterns = [
            (compile_path(path)[0], protocol) for protocol in protocols for path in protocol.paths if "{" in path
        ]
        self._owned = [
            (re.compile(compile_path(path)[0].pattern.removesuffix("$") + "(/|$)"), protocol)
            for protocol in protocols
            for path in (*protocol.paths, *(page for _, page in protocol.pages), *protocol.other_paths)
        ]
        self._aliases = aliases
        self._never_load_for = never_load_for

    def methods(self, path: str) -> Sequence[str]:
        """The methods that engines answer at ``path``, where nobody answers another one; none at all other paths."""
        hot = path.encode("latin-1", "replace") in self._admission.hot_paths
        posts = hot or path in FORM_PATHS or any(pattern.match(path) for pattern, _ in self._patterns)
        pages = _PAGE_METHODS if path in ENGINE_PAGES else ()
        return (*pages, "POST") if posts else pages

    def error(self, path: str, status: int, envelope: dict[str, Any]) -> bytes:
        """The body of an error at ``path``, in the form of the protocol whose path it is or is below."""
        begin = path[:_MOST_MATCHED]
        owned = [(found.end(), protocol) for pattern, protocol in self._owned if (found := pattern.match(begin))]
        if not owned:
            return stream_form(path).error_body(status, envelope)
        _, protocol = max(owned, key=itemgetter(0))
        return form_of_protocol(path, protocol).error_body(status, envelope)

    def find(self, method: bytes, target: Target, headers: Headers) -> Relayed | None:
        """How an engine gets the request; ``None`` if none does. Raises ``InvalidRequest``."""
        if target.raw_path.startswith(_UPSTREAM):
            address = self.upstream(target.raw_path)
            if address.known and not address.path:
                return None
            return self._direct(self._call(address, method.decode(), target.query))
        if method == b"POST":
            return self._posted(target.path, headers)
        if target.path in ENGINE_PAGES and method.decode() in _PAGE_METHODS:
            return self._direct(_page_call(target, method.decode()))
        return None

    def web_socket(self, target: Target) -> EngineCall | None:
        """The engine's side of a WebSocket; ``None`` if it is not for an engine."""
        if target.path == REALTIME:
            return _page_call(target)
        if not target.raw_path.startswith(_UPSTREAM):
            return None
        return self._call(self.upstream(target.raw_path), "GET", target.query)

    def upstream(self, raw_path: bytes) -> UpstreamAddress:
        """Split a path below ``/upstream/`` after the longest known name, which may have slashes.

        Without a known name, after the first segment. Paths are read as sent, where ``%2F`` is no slash.
        """
        behind = raw_path[len(_UPSTREAM) :]
        models, aliases = self._admission.relay.context.fleet.snapshot.models, self._aliases()
        most = 1 + max((name.count("/") for names in (models, aliases.named) for name in names), default=0)
        segments = behind.split(b"/", most)
        taken, name = segments[0], ""
        for count in range(most, 0, -1):
            taken = b"/".join(segments[:count])
            name = unquote(taken)
            if name in models or aliases.find(name) is not None:
                return UpstreamAddress(name, True, behind[len(taken) :].decode("latin-1"))
        return UpstreamAddress(name, False, behind[len(taken) :].decode("latin-1"))

    def _posted(self, path: str, headers: Headers) -> Relayed | None:
        admission = self._admission
        relay = admission.relay
        if path in FORM_PATHS and is_form(headers):
            length = content_length(headers)
            if length is None or length > _SMALL:
                return Relayed(relay.open, self._admit_upload, uploads=True)
            return Relayed(partial(relay.open_job, FormJob), admission.admit)
        if path in FORM_PATHS or path.encode("latin-1", "replace") in admission.hot_paths:
            return Relayed(relay.open, admission.admit)
        for pattern, protocol in self._patterns:
            if pattern.match(path):
                return Relayed(partial(relay.open_translated, protocol=protocol), admission.admit)
        return None

    def _admit_upload(self, headers: Headers) -> AdmittedCaller | None:
        """Admit a form whatever its length, as most of it is not held: only ``max_body`` bounds it."""
        length = content_length(headers)
        if length is not None and length > self._admission.max_body:
            raise self._admission.too_large()
        return self._admission.admit([header for header in headers if header[0] != b"content-length"])

    def _call(self, address: UpstreamAddress, method: str, query: bytes) -> EngineCall:
        path = address.path or "/"
        loads = not any(re.search(pattern, address.path) for pattern in self._never_load_for())
        return EngineCall(address.model, method, f"{path}?{query.decode('latin-1')}" if query else path, loads)

    def _direct(self, call: EngineCall) -> Relayed:
        def admit(headers: Headers) -> AdmittedCaller | None:
            caller = self._admission.admit_direct(headers)
            if call.is_named and not call.model:
                path = call.target.partition("?")[0]
                raise InvalidRequest(f"The query has no 'model': name it, as in {path}?model=NAME", param="model")
            check_path(call.target)
            return caller

        return Relayed(partial(self._admission.relay.open_job, partial(EngineJob, call=call)), admit)


def check_path(target: str) -> None:
    """Refuse a path that an engine's server may take for one outside of the backend's ``url``."""
    path = target.partition("?")[0]
    read = unquote(path, "latin-1")
    above = any(segment.partition(";")[0] == ".." for segment in read.split("/"))
    if above or "//" in path or "\\" in read:
        raise InvalidRequest("A path below /upstream/MODEL/ must not have '..', '//' or a backslash, encoded or not")


def content_length(headers: Headers) -> int | None:
    """The announced length of a body in bytes."""
    return next((int(value) for name, value in headers if name == b"content-length"), None)


def _page_call(target: Target, method: str = "GET") -> EngineCall:
    query = target.query.decode("latin-1")
    asked = parse_qs(query)
    loads = asked.get("autoload", ["true"])[0] in ("true", "1")  # as llama-server's router reads it
    return EngineCall(asked.get("model", [""])[0], method, f"{target.path}?{query}", loads, is_named=True)
