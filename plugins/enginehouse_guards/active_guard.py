"""A guard, and what follows if it fails."""

from __future__ import annotations

from enginehouse.errors import PluginFailed
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import Change, InterceptedRequest, Refuse


class ActiveGuard:
    """The ``guard`` of ``plugin``. ``passes``: texts pass if it fails; the gateway does that for requests and answers.

    Each method raises ``PluginFailed`` for a result that guards must not return.
    """

    def __init__(self, plugin: PluginId, guard: Guard, *, passes: bool) -> None:
        self._plugin = plugin
        self._guard = guard
        self._passes = passes

    @property
    def look_back(self) -> int:
        """The characters at the end of a text that are held back."""
        return max(0, self._guard.look_back)

    def has(self, method: str) -> bool:
        """Whether the guard has this method itself."""
        return getattr(type(self._guard), method) is not getattr(Guard, method)

    async def before(self, request: InterceptedRequest) -> Refuse | Change | None:
        """What it says of a request."""
        return self._decided(await self._guard.before(_seen(request), request.caller))

    async def after(self, request: InterceptedRequest, status: int, body: bytes) -> Refuse | Change | None:
        """What it says of a whole answer."""
        return self._decided(await self._guard.after(GuardAnswer(_seen(request), request.caller, status, body)))

    def on_text(self, text: str) -> str | Refuse:
        """What it makes of a text."""
        try:
            with plugin_errors(self._plugin):
                said: object = self._guard.on_text(text)
                if said is None:
                    return text
                if isinstance(said, (str, Refuse)):
                    return said
                raise wrong_result(self._plugin, f"must return None, a text or Refuse, got {type(said).__name__}")
        except PluginFailed:
            if not self._passes:
                raise
            return text

    def _decided(self, said: object) -> Refuse | Change | None:
        if said is None or isinstance(said, (Refuse, Change)):
            return said
        raise wrong_result(self._plugin, f"must return None, Refuse or Change, got {type(said).__name__}")


def _seen(request: InterceptedRequest) -> GuardRequest:
    return GuardRequest(request.path, request.model, request.headers, request.body)
