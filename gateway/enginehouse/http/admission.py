"""Who may send what: callers, by what their heads show, and bodies, by the memory that is left.

Authenticators find out who sends a request; the one of keys, which also counts requests, is in the plugin ``callers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import time
from typing import Final, NamedTuple, Protocol

import msgspec

from enginehouse.aio.write_batch import WriteBatch
from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.errors import BodyTooLarge, Forbidden, Overloaded, RequestError, Unauthorized
from enginehouse.domain.names import kept_name
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request import Headers
from enginehouse.http.cross_origin import CrossOriginProtection
from enginehouse.interfaces.accounting import Accounting
from enginehouse.interfaces.authenticators import AdmittedCaller, Authenticator, Caller
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.relay.context import RelayContext
from enginehouse.relay.heads import read_behalf
from enginehouse.relay.jobs.engine_job import EngineCall
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.relay.web_socket_request import Enter, WebSocketRequest
from enginehouse.telemetry.plugin_failures import plugin_failed, wrong_result

INFERENCE_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/rerank",
    "/v1/reranking",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/speech",
    "/v1/audio/voices",
    "/v1/images/generations",
    "/v1/score",
    "/rerank",
    "/reranking",
    "/score",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/completion",
    "/infill",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
)
"""The endpoints whose ``POST`` is relayed to an engine: JSON with a ``model``."""

FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations")
"""The endpoints whose ``POST`` is relayed to an engine: a form with a ``model``."""

_CHECKED: Final = frozenset({b"content-length", b"origin"})
_MOST_CALLERS: Final = 10_000
_LONGEST: Final = 512
"""Characters of a name, whose parts an authenticator has shortened itself."""
_NEVER_ASKED: Final = -1


class BodyMemory:
    """Counts the bytes of request bodies from their arrival until the end of their request.

    ``most``: the most bytes that may be held; 0 means no limit. Copies that the gateway makes are not counted: a body
    that is changed for its engine takes up to twice as much.
    """

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes that have arrived. Raises ``Overloaded`` if there is no room for them."""
        self.held += size
        if self.most and self.held > self.most:
            self.held -= size
            self.check(size)

    def check(self, size: int) -> None:
        """Raise ``Overloaded`` if there is no room for ``size`` bytes."""
        if self.most and self.held + size > self.most:
            raise Overloaded(
                f"The gateway holds {self.held} bytes of request bodies, and its limit is {self.most} "
                "(server.max_body_memory): send the request again later"
            )

    @property
    def is_scarce(self) -> bool:
        """Whether more than half is taken. A body that need not be held yet then stays with its client."""
        return bool(self.most) and self.held > self.most // 2


class BodyShare:
    """The share of one body in the memory: ``size`` bytes so far."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.size = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes that have arrived. Raises ``Overloaded`` if there is no room for them."""
        self._memory.take(size)
        self.size += size

    def hold(self, size: int) -> None:
        """Count ``size`` bytes in place of those so far. Raises ``Overloaded`` if there is no room for more."""
        if size > self.size:
            self.take(size - self.size)
        else:
            self._memory.held -= self.size - size
            self.size = size

    def give_back(self) -> None:
        """Count all bytes out, because they are no longer held."""
        self.hold(0)


class ActiveAuthenticator(NamedTuple):
    """One that may know callers."""

    plugin: PluginId
    authenticator: Authenticator


class Authentication:
    """Asks the active authenticators in their order. Without any, or while all are open, everyone may do everything.

    ``accounting`` counts the requests of callers with limits. ``epoch`` tells the time of day. ``changes``: a number in
    memory that the processes of the gateway share. It grows when an authenticator may have opened or closed.
    """

    def __init__(
        self, accounting: Accounting, epoch: Callable[[], float] = time, changes: memoryview | None = None
    ) -> None:
        self._accounting = accounting
        self._epoch = epoch
        self._changes = memoryview(bytearray(8)).cast("q") if changes is None else changes
        self._asked_at = _NEVER_ASKED
        self._open = False
        self._active: Sequence[ActiveAuthenticator] = ()
        self._known: dict[tuple[str, Caller], AdmittedCaller] = {}

    def use(self, active: Sequence[ActiveAuthenticator]) -> None:
        """Ask these from now on."""
        self._active = active
        self._known.clear()
        self.ask_again()

    def changed(self) -> None:
        """Have all processes ask again whether authenticators are open, before their next request."""
        self._changes[0] += 1

    def ask_again(self) -> None:
        """As ``changed``, in this process."""
        self._asked_at = _NEVER_ASKED

    def _ask(self) -> None:
        """Ask the authenticators whether they are open. While one fails, no request gets in, and each asks again."""
        self._asked_at = _NEVER_ASKED
        changes = self._changes[0]
        for plugin, authenticator in self._active:
            try:
                self._open = bool(authenticator.is_open())
            except RequestError:
                raise
            except BaseException as error:
                raise plugin_failed(plugin, error) from error
            if not self._open:
                break
        else:
            self._open = True
        self._asked_at = changes

    @property
    def is_open(self) -> bool:
        """Whether requests need no credential."""
        if self._asked_at != self._changes[0]:
            self._ask()
        return self._open

    @property
    def has_operators(self) -> bool:
        """Whether anyone may use operators' pages now."""
        return self.is_open or any(each.authenticator.has_operators() for each in self._active)

    def caller(self, headers: Headers) -> AdmittedCaller | None:
        """Whoever sends a request with these ``headers``; ``None`` if it needs no credential.

        If it shows several, one that is right is enough. Raises ``Unauthorized``, or ``Overloaded`` while credentials
        cannot be checked.
        """
        if self._asked_at != self._changes[0]:
            self._ask()
        if self._open:
            return None
        problem: RequestError | None = None
        for plugin, authenticator in self._active:
            try:
                found = authenticator.caller(headers)
                if found is None:
                    continue
                if not isinstance(found, AdmittedCaller):
                    self._check_expiry(found)
            except RequestError as error:
                if not isinstance(problem, Overloaded):
                    problem = error
                continue
            except BaseException as error:
                raise plugin_failed(plugin, error) from error
            admitted = found if isinstance(found, AdmittedCaller) else self._admitted(plugin, found)
            if not admitted.gateway:
                return admitted
            behalf = read_behalf(headers)
            return admitted if behalf is None else admitted.on_behalf(behalf.caller, behalf.priority)
        raise problem or self._no_credential()

    def _no_credential(self) -> Unauthorized:
        others = " or ".join(
            f"'{each.plugin.type}'" for each in self._active if not isinstance(each.authenticator, Accounting)
        )
        more = f", or a credential that the authenticator {others} knows" if others else ""
        return Unauthorized(f"No API key: send it as 'Authorization: Bearer KEY'{more}")

    def admin(self, headers: Headers) -> AdmittedCaller | None:
        """As ``caller``. Also raises ``Forbidden`` unless the caller is an operator."""
        caller = self.caller(headers)
        if caller is not None and not caller.admin:
            raise Forbidden(f"Key '{caller.name}' is not an admin key")
        return caller

    def named(self, name: str, models: Sequence[str] = ("*",)) -> AdmittedCaller | None:
        """The caller called ``name``, who shows no credential now; ``None`` if no active authenticator has such a name.

        ``models``: those that the credential permitted, where rights belong to credentials.
        """
        for plugin, authenticator in self._active:
            if (known := authenticator.named(name)) is not None:
                return known
            space = f"{plugin.type}/"
            if name.startswith(space):
                own = name.removeprefix(space)
                return self._admitted(plugin, Caller(own, tuple(models), limits=authenticator.limits_of(own)))
        return None

    def absent(self, name: str, models: Sequence[str], through: str = "") -> AdmittedCaller:
        """As ``named``. ``through``: the key of the gateway that sent for them; empty for none.

        Raises ``Forbidden`` if the key is gone.
        """
        key = through or name
        found = self.named(key, models)
        if found is None:
            raise Forbidden(f"Key '{key}' does not exist any more, or has expired")
        return found.on_behalf(name, found.priority) if through else found

    def limits_of(self, name: str) -> LimitAmounts | None:
        """The limits of the caller of that name, as an authenticator knows them."""
        for plugin, authenticator in self._active:
            space = f"{plugin.type}/"
            if name.startswith(space):
                return authenticator.limits_of(name.removeprefix(space))
        return None

    def _check_expiry(self, found: Caller) -> None:
        if isinstance(found, Caller) and found.until != math.inf and self._epoch() >= found.until:
            raise Unauthorized("The credential has expired")

    def _admitted(self, plugin: PluginId, found: Caller) -> AdmittedCaller:
        if not isinstance(found, Caller):
            raise wrong_result(plugin, f"returned an object of type {type(found).__name__} from caller")
        try:
            known = self._known.get((plugin.type, found))
        except TypeError:  # a list has no hash
            known = None
        if known is None:
            found = _checked(plugin, found)
            known = self._known.get((plugin.type, found))
        if known is None:
            name = f"{plugin.type}/{found.name if len(found.name) <= _LONGEST else kept_name(found.name)}"
            if len(self._known) >= _MOST_CALLERS:
                self._known.clear()
            known = self._known[plugin.type, found] = self._accounting.counted(name, found)
        return known


def _checked(plugin: PluginId, found: Caller) -> Caller:
    """``found`` with a tuple of models. Raises ``PluginFailed`` for values of other types than ``Caller`` says."""
    if found.limits is not None and not isinstance(found.limits, LimitAmounts):
        raise wrong_result(plugin, "returned a Caller whose limits are no LimitAmounts")
    try:
        checked = msgspec.convert({**msgspec.structs.asdict(found), "limits": None}, Caller)
    except msgspec.ValidationError as error:
        raise wrong_result(plugin, f"returned a Caller that is none: {error}") from error
    return msgspec.structs.replace(checked, limits=found.limits)


class OpensRequests(Protocol):
    """The relay, as connections and pages see it; its methods say more.

    An interface, because compiled code takes no substitute for a compiled class.
    """

    context: RelayContext
    closed: bool

    def check_open(self) -> None: ...

    def request_id(self, headers: Headers) -> bytes: ...

    def open(self, writer: ResponseWriter, path: str, headers: Headers) -> OpenExchange: ...

    def open_translated(
        self, writer: ResponseWriter, path: str, headers: Headers, protocol: ClientProtocol
    ) -> OpenExchange: ...

    def open_job(
        self, kind: Callable[..., Job], writer: ResponseWriter, path: str, headers: Headers
    ) -> OpenExchange: ...

    def web_socket(
        self, path: str, headers: Headers, call: EngineCall, enter: Enter, plugin: PluginId, address: str
    ) -> WebSocketRequest: ...


class Admission:
    """Admits requests by their heads: the gateway is open, the key is known, there is room for the body.

    If no keys are set, it refuses web pages of other origins. ``client_timeout``: the seconds for which a client may
    leave answers unread; 0 means no limit. ``paths``: those whose ``POST`` is relayed.
    ``writes``: those to all clients. ``date``: makes the line of a header that every answer has.
    """

    def __init__(
        self,
        relay: OpensRequests,
        authentication: Authentication,
        cross_origin: CrossOriginProtection,
        *,
        max_body: int,
        paths: Sequence[str] = INFERENCE_PATHS,
        body_memory: BodyMemory,
        writes: WriteBatch,
        date: Callable[[], bytes],
        client_timeout: float = 0.0,
    ) -> None:
        self.relay = relay
        self.authentication = authentication
        self.cross_origin = cross_origin
        self.max_body = max_body
        self.body_memory = body_memory
        self.writes = writes
        self.date = date
        self.client_timeout = client_timeout
        self.hot_paths = {path.encode(): path for path in paths}

    def admit(self, headers: Headers) -> AdmittedCaller | None:
        """Return the caller, or ``None`` if no keys are set.

        Raises ``Unauthorized``, ``Forbidden``, ``BodyTooLarge``, ``Overloaded`` or ``ShuttingDown``.
        """
        if self.relay.closed:
            self.relay.check_open()
        caller = self.authentication.caller(headers)
        for name, value in headers:
            if name in _CHECKED:
                if name == b"content-length":
                    size = int(value)
                    if size > self.max_body:
                        raise self.too_large()
                    self.body_memory.check(size)
                elif caller is None:
                    self.cross_origin.check_origin(headers)
        return caller

    def admit_alike(self, headers: Headers, size: int) -> AdmittedCaller | None:
        """As ``admit``, for a head like one that was admitted, and count its body of ``size`` bytes, which is here."""
        if self.relay.closed:
            self.relay.check_open()
        caller = self.authentication.caller(headers)
        if size > self.max_body:
            raise self.too_large()
        self.body_memory.take(size)
        return caller

    def admit_direct(self, headers: Headers) -> AdmittedCaller | None:
        """Admit a request for an engine itself. Also raises ``Forbidden`` for a key with a token limit.

        If no keys are set, operators' rules apply, because the request may be for a page that controls the engine.
        """
        caller = self.admit(headers)
        if caller is None:
            self.cross_origin.check(headers)
        else:
            caller.check_uncounted()
        return caller

    def admit_web_socket(self, headers: Headers) -> AdmittedCaller | None:
        """Admit a WebSocket to an engine itself."""
        caller = self.admit_direct(headers)
        if caller is not None:
            self.cross_origin.check_web_socket(headers)
        return caller

    def admit_operator(self, headers: Headers) -> str:
        """Admit a request for operators' pages. Returns the name of its key; empty if no keys are set.

        Raises ``Unauthorized`` or ``Forbidden``.
        """
        return self._named(self.authentication.admin(headers), headers)

    def admit_caller(self, headers: Headers) -> str:
        """As ``admit_operator``, for pages that every key may read."""
        return self._named(self.authentication.caller(headers), headers)

    def _named(self, caller: AdmittedCaller | None, headers: Headers) -> str:
        if caller is None:
            self.cross_origin.check(headers)
            return ""
        return caller.name

    def too_large(self) -> BodyTooLarge:
        """The error for a body of more than ``server.max_body``."""
        return BodyTooLarge(f"The request body is larger than {self.max_body} bytes (server.max_body)")
