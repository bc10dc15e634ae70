"""Every error of Enginehouse, in one tree.

::

    EnginehouseError
    ├── ConfigError            an invalid configuration: names the file, the key and the remedy
    │   ├── AliasCycle
    │   └── ConfigErrors           several of them, one line each
    ├── PluginError            an unusable plugin: names it, its distribution and version
    ├── GatewayError           raised by the command line: the gateway is unreachable, or it refused
    └── RequestError           sent to a client as an OpenAI error object: each class below names its status and code

Messages name the cause and the remedy. They hold no secrets, so clients may see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from enginehouse.domain.names import did_you_mean

_LONGEST_NAME = 256
_MOST_LISTED = 5
"""The most models that an error lists."""
_LONGEST_PROBLEM, _MOST_PROBLEMS = 200, 3
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def shortened(name: str) -> str:
    """Cut ``name`` after 256 bytes of UTF-8, because clients and engines choose names that errors and counters keep."""
    if len(name) * 4 <= _LONGEST_NAME:
        return name
    raw = name.encode(errors="replace")
    return name if len(raw) <= _LONGEST_NAME else raw[: _LONGEST_NAME - 3].decode(errors="ignore") + "…"


class EnginehouseError(Exception):
    """The base class of all errors that Enginehouse raises."""

    def rows(self) -> list[dict[str, str]]:
        """What is wrong with a configuration, for JSON: a row for each problem."""
        return [{"file": "", "key": "", "problem": str(self), "remedy": "", "code": "invalid_request"}]


class ConfigError(EnginehouseError):
    """The configuration is invalid.

    ``file`` and ``key`` locate the problem, ``remedy`` suggests a change. Each is empty if unknown.
    """

    code: ClassVar[str] = "invalid_request"
    """The code of a reload that it refuses."""

    def __init__(self, problem: str, *, file: str = "", key: str = "", remedy: str = "") -> None:
        self.problem = problem
        self.file = file
        self.key = key
        self.remedy = remedy
        where = ": ".join(part for part in (file, key) if part)
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text} ({remedy})" if remedy else text)

    def located(self, file: str) -> ConfigError:
        """Return this error with ``file``, if it names a key but no file."""
        if not file or self.file or not self.key:
            return self
        return type(self)(self.problem, file=file, key=self.key, remedy=self.remedy)

    def rows(self) -> list[dict[str, str]]:
        where = {"file": self.file, "key": self.key}
        return [{**where, "problem": self.problem, "remedy": self.remedy, "code": self.code}]


class AliasCycle(ConfigError):
    """An alias in ``routing.aliases`` leads back to itself."""

    code = "alias_cycle"


class ConfigErrors(ConfigError):
    """The configuration has several problems: ``errors``. The message has one line for each."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(str(error) for error in errors))

    def located(self, file: str) -> ConfigError:
        return ConfigErrors([error.located(file) for error in self.errors])

    def rows(self) -> list[dict[str, str]]:
        return [row for error in self.errors for row in error.rows()]


class PluginError(EnginehouseError):
    """A plugin cannot be used. The message names the plugin, its distribution and the version."""

    def __init__(self, problem: str, *, distribution: str = "", version: str = "", plugin: str = "") -> None:
        self.problem = problem
        self.distribution = distribution
        self.version = version
        self.plugin = plugin
        origin = f"{distribution} {version}".strip()
        named = f"plugin '{plugin}'" if plugin else "plugin"
        super().__init__(f"{named} from {origin}: {problem}" if origin else f"{named}: {problem}")


class GatewayError(EnginehouseError):
    """A running gateway is unreachable, or it refused a command."""


def _type_of(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


class RequestError(EnginehouseError):
    """An error that the client receives as an OpenAI error object.

    Subclasses set ``status`` and ``code`` as arguments of the class, and ``type`` if it is not that of the status.
    ``param`` names the field of the request at fault, ``details`` holds JSON-compatible facts.
    """

    status: int = 500
    """The HTTP status."""
    code: ClassVar[str] = "internal_error"
    """The code in the error object."""
    type: str = "server_error"
    """The type in the error object, one of OpenAI's; by default that of the status."""
    retry_after: int | None = None
    """Seconds for the ``Retry-After`` header; ``None`` for no header."""

    def __init_subclass__(cls, *, status: int = 0, code: str = "", type: str = "") -> None:
        if status:
            cls.status, cls.type = status, type or _type_of(status)
        if code:
            cls.code = code

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.message = message
        self.param = param
        self.details: Mapping[str, Any] = details or {}
        if retry_after is not None:
            self.retry_after = retry_after
        super().__init__(message)

    def envelope(self) -> dict[str, Any]:
        """The JSON body of the response."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**error, "details": dict(self.details)}}


class InvalidRequest(RequestError, status=400, code="invalid_request"):
    """The request is malformed: invalid JSON, no model, a field of the wrong type."""


class BodyTooLarge(InvalidRequest, status=413):
    """The request body is larger than ``server.max_body``."""


class EncodedBody(InvalidRequest, status=415):
    """The request body has a Content-Encoding, such as gzip. Decisions read the body, so it must be plain JSON."""


class CapabilityMismatch(RequestError, status=400, code="capability_mismatch"):
    """The model has healthy replicas, but each lacks a capability that the request needs, one of ``missing``."""

    def __init__(self, model: str, missing: Sequence[str]) -> None:
        model = shortened(model)
        super().__init__(
            f"No backend of model '{model}' supports what this request needs: {', '.join(missing)}",
            details={"model": model, "missing": list(missing)},
        )
        self.missing = tuple(missing)

    def name_able(self, models: Sequence[str]) -> None:
        """Name up to five of the ``models`` that are known to have what is missing."""
        if models:
            listed = ", ".join(f"'{model}'" for model in models[:_MOST_LISTED])
            self.message += f" ({listed} can serve it)"
            self.details = {**self.details, "models": list(models[:_MOST_LISTED])}


class ContextLengthExceeded(CapabilityMismatch, code="context_length_exceeded"):
    """The prompt and the answer need more ``tokens`` than ``limit``, the model's longest context.

    ``counted``: the engine has counted them; otherwise they are estimated.
    """

    def __init__(self, model: str, tokens: int, limit: int, *, counted: bool = False) -> None:
        details = {"model": shortened(model), "missing": ["context_length"], "tokens": tokens, "limit": limit}
        RequestError.__init__(
            self,
            f"This model's maximum context length is {limit} tokens (context_length). However, your request has "
            f"{'' if counted else 'about '}{tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            details=details,
        )
        self.missing = ("context_length",)


class Unauthorized(RequestError, status=401, code="unauthorized"):
    """The request has no API key, or an unknown one."""


class Forbidden(RequestError, status=403, code="forbidden"):
    """The API key does not permit this request."""


class GuardRefused(RequestError, status=403, code="guard_refused", type="invalid_request_error"):
    """A guard or an interceptor refused the request or its answer, with a status and a code of its own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        vars(self).update(status=status, code=code)


class ModelNotFound(RequestError, status=404, code="model_not_found"):
    """No backend serves the model. ``alias_of`` is the requested name, if that is an alias of ``model``."""

    def __init__(self, model: str, alias_of: str | None = None) -> None:
        model = shortened(model)
        text = f"Model '{model}' not found"
        if alias_of is not None:
            text = f"Model '{alias_of}' not found: it is an alias of '{model}', which no backend has"
        super().__init__(text, param="model", details={"model": model})

    def suggest(self, models: Sequence[str]) -> None:
        """Name the ``models`` that may have been meant, and up to five that there are."""
        if models:
            near = did_you_mean(self.details["model"], list(models))
            listed = ", ".join(f"'{model}'" for model in models[:_MOST_LISTED])
            rest = " and others" if len(models) > _MOST_LISTED else ""
            self.message += f" ({near + ' ' if near else ''}there are {listed}{rest})"
            self.details = {**self.details, "models": list(models[:_MOST_LISTED])}


class NotFound(RequestError, status=404, code="not_found"):
    """The path, or an object named in it, does not exist."""


class CannotContinue(RequestError, status=409, code="cannot_continue"):
    """No other engine can continue a live stream; the message has the reason."""


class NotLoaded(RequestError, status=409, code="not_loaded"):
    """The request is one for which no model is loaded."""


class RateLimited(RequestError, status=429, code="rate_limited"):
    """The API key exceeded one of its limits. ``lines``: header lines that tell the limits, each ending in CRLF."""

    retry_after = 1
    lines: bytes = b""


class BudgetExhausted(RateLimited, code="budget_exhausted"):
    """The API key has spent its budget of a day or a month."""


class QueueFull(RequestError, status=429, code="queue_full"):
    """The host's queue has reached ``scheduling.max_queue``."""

    retry_after = 1


class DeadlineMissed(RequestError, status=429, code="deadline"):
    """The request cannot be served before its deadline: it has waited for ``wait_s`` seconds, or would have to."""

    def __init__(self, wait_s: float) -> None:
        text = f"The request cannot be served before its deadline: it would have to wait for {wait_s:.1f} s"
        super().__init__(text, details={"wait_ms": round(1e3 * wait_s)}, retry_after=max(1, round(wait_s)))


class Shed(RequestError, status=429, code="overloaded"):
    """Requests would wait for longer than ``routing.shed_after``, and this one has the lowest priority."""

    def __init__(self, wait_s: float, *, retry_after: int) -> None:
        text = f"Requests would have to wait for {wait_s:.1f} s (routing.shed_after): try again later"
        super().__init__(text, details={"wait_ms": round(1e3 * wait_s)}, retry_after=retry_after)


class Cancelled(RequestError, status=499, code="cancelled"):
    """The request was cancelled before the engine finished it."""


class ClientLeft(RequestError, status=499, code="client_left"):
    """The client left while the answer went on for the sake of others."""


class PluginFailed(RequestError, code="plugin_failed"):
    """A plugin raised an exception, or returned an invalid result, while handling the request."""


class GuardFailed(PluginFailed, status=503):
    """A guard or an interceptor did not answer in time."""


class UpstreamError(RequestError, status=502, code="upstream_error"):
    """The engine was unreachable or broke off, and no retry is left."""


class EngineRefused(RequestError, code="invalid_request"):
    """The engine blames the request with this ``status``, in a stream or in an answer of status 200."""

    def __init__(self, status: int, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(message, details=details)
        self.status, self.type = status, _TYPES.get(status, "invalid_request_error")


class UpstreamInvalid(UpstreamError, code="upstream_invalid"):
    """The engine's answer is not what its content type says, and no retry is left."""


class Overloaded(RequestError, status=503, code="overloaded"):
    """The gateway lacks memory for bodies or file descriptors, or has too many streams open. No engine is at fault."""

    retry_after = 1


class NoHealthyBackend(RequestError, status=503, code="no_healthy_backend"):
    """No backend can serve the model now. ``unlisted``: backends that may have it, if no other one does.

    ``least_tier``: the tier that the request needs, if only backends of lower ones are left. ``problems``: why each
    backend is unhealthy.
    """

    retry_after = 5

    def __init__(
        self,
        model: str,
        details: Mapping[str, Any] | None = None,
        *,
        unlisted: Sequence[str] = (),
        least_tier: int = 0,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        message = f"No healthy backend available for model '{shortened(model)}'"
        if problems:
            named = [f"'{backend}': {why[:_LONGEST_PROBLEM]}" for backend, why in problems.items()]
            message += " (" + "; ".join([*named[:_MOST_PROBLEMS], *("..." for _ in named[_MOST_PROBLEMS:][:1])]) + ")"
        if least_tier:
            message += f" with tier {least_tier} or more (routing.least_tier)"
        if unlisted:
            message += f"; not known yet are the models of {', '.join(unlisted)}"
        super().__init__(message, details=details)


class ZoneUnavailable(RequestError, status=503, code="zone_unavailable"):
    """No backend of the zones that a request must not leave can serve it."""

    retry_after = 5

    def __init__(self, model: str, zones: Sequence[str]) -> None:
        named = ", ".join(f"'{zone}'" for zone in zones)
        super().__init__(
            f"The request must not leave zone {named}, and no backend there serves '{shortened(model)}' now",
            param="model",
            details={"zones": list(zones)},
        )


class FallbackExhausted(RequestError, status=503, code="fallback_exhausted"):
    """Neither the model nor any of its fallbacks is available. ``reasons`` has one text per attempted model."""

    retry_after = 5

    def __init__(self, attempted: Sequence[str], reasons: Mapping[str, str]) -> None:
        super().__init__(
            f"All models of the fallback chain are unavailable: {', '.join(attempted)}",
            details={"attempted": list(attempted), "reasons": dict(reasons)},
        )
        self.attempted = tuple(attempted)


class LoadFailed(RequestError, status=503, code="load_failed"):
    """The model's engine did not start, or its swap failed."""

    retry_after = 5


class LoadCancelled(LoadFailed):
    """The load was given up: an operator unloaded the model, or no request waits for it any more."""


class PullFailed(LoadFailed):
    """A model could not be downloaded. The message says what to do about it."""


class NotEnoughMemory(LoadFailed):
    """The engine ran out of memory while it started. It may start after other models have been unloaded."""


class ReplicaLost(LoadFailed):
    """The engine exited, or the replica was removed, while the request waited for it.

    The gateway routes such a request again, so clients seldom see this error.
    """

    def __init__(self, replica: str) -> None:
        super().__init__(f"The replica '{replica}' was lost while the request waited for it")


class ShuttingDown(RequestError, status=503, code="shutting_down"):
    """The gateway is shutting down and accepts no requests."""

    retry_after = 1


class QueueTimeout(RequestError, status=504, code="queue_timeout"):
    """The request waited longer than ``scheduling.queue_timeout``."""


class UpstreamTimeout(RequestError, status=504, code="upstream_timeout"):
    """The engine exceeded one of the limits in ``timeouts``."""


def all_codes() -> tuple[str, ...]:
    """Every code that an error object may have."""
    return tuple(dict.fromkeys(each.code for each in kinds_of(RequestError)))


def status_of(code: str) -> int:
    """The HTTP status of errors with this ``code``; 500 for an unknown one."""
    return next((each.status for each in kinds_of(RequestError) if each.code == code), RequestError.status)


def kinds_of(base: type[RequestError]) -> Iterator[type[RequestError]]:
    """``base``, and all classes below it."""
    yield base
    for each in base.__subclasses__():
        yield from kinds_of(each)
