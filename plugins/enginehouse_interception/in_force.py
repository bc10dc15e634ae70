"""A plugin that decides about requests, with its time limit, and what follows if it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from enginehouse import RequestError
from enginehouse.interceptors import Change, Refuse
from enginehouse.middleware import GuardFailed, GuardRefused, shown
from enginehouse.runtime import PluginId, await_plugin, log_plugin_failure, plugin_failed, run_within, wrong_result

T = TypeVar("T")

_LEAST_STATUS: Final = 400
_MOST_STATUS: Final = 599


class InForce(NamedTuple):
    """``timeout``: the seconds that an answer may take. ``passes``: if it fails, requests go on without it."""

    plugin: PluginId
    timeout: float
    passes: bool

    async def ask(self, method: Callable[..., Awaitable[object]], read: Callable[[object], T], *facts: object) -> T:
        """What the plugin says about ``facts``, as ``read`` makes it; that of ``None`` if it fails and requests pass.

        Raises ``RequestError``: the plugin's refusal, or its failure.
        """
        try:
            return read(await run_within(self.timeout, await_plugin(self.plugin, method, *facts)))
        except GuardRefused:
            raise
        except TimeoutError:
            log_plugin_failure(self.plugin, f"did not answer within {self.timeout:g} s")
            if not self.passes:
                text = f"The {self.plugin} did not answer within {self.timeout:g} s"
                raise GuardFailed(text, details=self.plugin.details) from None
        except RequestError:
            if not self.passes:
                raise
        return read(None)

    def failure(self, error: BaseException) -> RequestError | None:
        """The error that follows from one that the plugin raised; ``None`` if requests pass."""
        if isinstance(error, GuardRefused):
            return error
        failure = error if isinstance(error, RequestError) else plugin_failed(self.plugin, error)
        return None if self.passes else failure

    def refusal(self, said: Refuse) -> RequestError:
        """The error that the client gets."""
        if not (_is_error(said.status) and said.code and isinstance(said.message, str)):
            problem = f"must refuse with a status from {_LEAST_STATUS} to {_MOST_STATUS}, a code and a message"
            return wrong_result(self.plugin, f"{problem}, got {shown(said)}")
        return GuardRefused(said.status, said.code, said.message)

    def changed(self, said: object, allowed: str) -> bytes | None:
        """The body in place of what the plugin was asked about, if it changes that. ``allowed``: names of results."""
        if isinstance(said, Refuse):
            raise self.refusal(said)
        if said is None:
            return None
        if isinstance(said, Change) and isinstance(said.body, (bytes, dict)):
            return self.encoded(said.body)
        raise wrong_result(self.plugin, f"must return {allowed}, got {shown(said)}")

    def encoded(self, body: bytes | dict[str, object]) -> bytes:
        """A body that the plugin has made."""
        if isinstance(body, bytes):
            return body
        try:
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise plugin_failed(self.plugin, error) from error


def _is_error(status: object) -> bool:
    return isinstance(status, int) and _LEAST_STATUS <= status <= _MOST_STATUS
