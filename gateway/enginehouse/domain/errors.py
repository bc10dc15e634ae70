"""Every error of Enginehouse, in one tree.

::

    EnginehouseError
    ├── ConfigError            refused at start: names the file, the key and the remedy
    │   ├── AliasCycle
    │   └── ConfigErrors           several at once, one line each
    ├── PluginError            refused at start: names the distribution, its version and the plugin
    ├── GatewayError           a running gateway that the command line cannot reach, or that refuses
    └── RequestError           answered to a client as an OpenAI error envelope
        ├── InvalidRequest         400  invalid_request
        │   └── BodyTooLarge       413  invalid_request
        ├── CapabilityMismatch     400  capability_mismatch
        ├── Unauthorized           401  unauthorized
        ├── Forbidden              403  forbidden
        ├── ModelNotFound          404  model_not_found
        ├── NotFound               404  not_found
        ├── RateLimited            429  rate_limited
        ├── QueueFull              429  queue_full
        ├── Cancelled              499  cancelled
        ├── PluginFailed           500  plugin_failed
        ├── UpstreamError          502  upstream_error
        ├── NoHealthyBackend       503  no_healthy_backend
        ├── FallbackExhausted      503  fallback_exhausted
        ├── LoadFailed             503  load_failed
        │   ├── NotEnoughMemory        503  load_failed
        │   └── ReplicaGone            503  load_failed
        ├── ShuttingDown           503  shutting_down
        ├── QueueTimeout           504  queue_timeout
        └── UpstreamTimeout        504  upstream_timeout

Messages name the thing and the remedy; they are safe to show to a client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class EnginehouseError(Exception):
    """The root: whatever Enginehouse raises on purpose."""


class ConfigError(EnginehouseError):
    """A configuration that cannot be used.

    ``file`` and ``key`` say where, ``remedy`` what to do about it; each may be empty when unknown.
    """

    def __init__(self, problem: str, *, file: str = "", key: str = "", remedy: str = "") -> None:
        self.problem = problem
        self.file = file
        self.key = key
        self.remedy = remedy
        where = ": ".join(part for part in (file, key) if part)
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text} ({remedy})" if remedy else text)


class AliasCycle(ConfigError):
    """``routing.aliases`` leads back to where it began (code ``alias_cycle``)."""

    code: ClassVar[str] = "alias_cycle"


class ConfigErrors(ConfigError):
    """Several things wrong with a configuration: ``errors``, each a line of the message."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(str(error) for error in errors))


class PluginError(EnginehouseError):
    """A plugin that cannot be used, with where it came from."""

    def __init__(self, problem: str, *, distribution: str = "", version: str = "", plugin: str = "") -> None:
        self.problem = problem
        self.distribution = distribution
        self.version = version
        self.plugin = plugin
        origin = f"{distribution} {version}".strip()
        named = f"plugin '{plugin}'" if plugin else "plugin"
        super().__init__(f"{named} from {origin}: {problem}" if origin else f"{named}: {problem}")


class GatewayError(EnginehouseError):
    """A running gateway could not be asked something, or refused it."""


class RequestError(EnginehouseError):
    """An error that a client is told about.

    ``status`` and ``code`` are part of the HTTP contract; ``details`` holds JSON-compatible facts;
    ``retry_after`` is in seconds and becomes a ``Retry-After`` header.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    retry_after: int | None = None

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
        """The error as OpenAI's clients expect it."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**error, "details": dict(self.details)}}


class InvalidRequest(RequestError):
    """The request itself is wrong: bad JSON, a missing model, a field of the wrong type."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class BodyTooLarge(InvalidRequest):
    """The body is larger than ``server.max_body``."""

    status = 413


class CapabilityMismatch(RequestError):
    """Healthy replicas of the model exist, and none can do what the request needs."""

    status = 400
    code = "capability_mismatch"
    type = "invalid_request_error"

    def __init__(self, model: str, missing: Sequence[str]) -> None:
        super().__init__(
            f"No backend of model '{model}' supports what this request needs: {', '.join(missing)}",
            details={"model": model, "missing": list(missing)},
        )
        self.missing = tuple(missing)


class Unauthorized(RequestError):
    """No key, or one that is not known here."""

    status = 401
    code = "unauthorized"
    type = "authentication_error"


class Forbidden(RequestError):
    """A known key that may not do this."""

    status = 403
    code = "forbidden"
    type = "permission_error"


class ModelNotFound(RequestError):
    """No backend has the model; ``alias_of`` is the name the client used when that was an alias."""

    status = 404
    code = "model_not_found"
    type = "invalid_request_error"

    def __init__(self, model: str, alias_of: str | None = None) -> None:
        text = f"Model '{model}' not found"
        if alias_of is not None:
            text = f"Model '{alias_of}' not found: it is an alias of '{model}', which no backend has"
        super().__init__(text, param="model", details={"model": model})


class NotFound(RequestError):
    """A path or a named thing that does not exist."""

    status = 404
    code = "not_found"
    type = "invalid_request_error"


class RateLimited(RequestError):
    """A key went over one of its limits."""

    status = 429
    code = "rate_limited"
    type = "rate_limit_error"
    retry_after = 1


class QueueFull(RequestError):
    """The host's queue is at ``scheduling.max_queue``."""

    status = 429
    code = "queue_full"
    type = "rate_limit_error"
    retry_after = 1


class Cancelled(RequestError):
    """Somebody ended the request before the engine did."""

    status = 499
    code = "cancelled"
    type = "invalid_request_error"


class PluginFailed(RequestError):
    """A plugin raised while it handled this request."""

    code = "plugin_failed"


class UpstreamError(RequestError):
    """The engine could not be reached, or broke before its first byte, and retries are spent."""

    status = 502
    code = "upstream_error"


class NoHealthyBackend(RequestError):
    """The model is known and nothing that serves it can take a request now."""

    status = 503
    code = "no_healthy_backend"
    retry_after = 5

    def __init__(self, model: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"No healthy backend available for model '{model}'", details=details)


class FallbackExhausted(RequestError):
    """Neither the model nor anything in its fallback chain can serve."""

    status = 503
    code = "fallback_exhausted"
    retry_after = 5

    def __init__(self, attempted: Sequence[str], reasons: Mapping[str, str]) -> None:
        super().__init__(
            f"All models of the fallback chain are unavailable: {', '.join(attempted)}",
            details={"attempted": list(attempted), "reasons": dict(reasons)},
        )
        self.attempted = tuple(attempted)


class LoadFailed(RequestError):
    """The model did not start, or the swap that was to bring it failed."""

    status = 503
    code = "load_failed"
    retry_after = 5


class NotEnoughMemory(LoadFailed):
    """The engine found too little memory to start; it may start where less runs beside it."""


class ReplicaGone(LoadFailed):
    """The replica went away by itself while the request waited for it; the relay routes such a request again."""

    def __init__(self, replica: str) -> None:
        super().__init__(f"The engine of '{replica}' went away while the request waited for it")


class ShuttingDown(RequestError):
    """The gateway is stopping and takes no new requests."""

    status = 503
    code = "shutting_down"
    retry_after = 1


class QueueTimeout(RequestError):
    """The request waited in the queue for longer than ``scheduling.queue_timeout``."""

    status = 504
    code = "queue_timeout"


class UpstreamTimeout(RequestError):
    """The engine took longer than one of ``timeouts``."""

    status = 504
    code = "upstream_timeout"
