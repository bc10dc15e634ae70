"""The guards in force, with their time limits, and what follows from what they say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import GuardFailed, GuardRefused, RequestError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.guards import Change, Guard, GuardAnswer, GuardRequest, Refuse
from enginehouse.telemetry.plugin_failures import await_plugin, log_plugin_failure, plugin_failed, wrong_result

_LEAST_STATUS, _MOST_STATUS = 400, 599


class GuardInForce(NamedTuple):
    """A guard with the seconds that it may take. ``passes``: if it fails, requests go on as if it were not there."""

    plugin: PluginId
    guard: Guard
    timeout: float
    passes: bool

    def overrides(self, method: str) -> bool:
        """Whether the guard has this method itself."""
        return getattr(type(self.guard), method) is not getattr(Guard, method)


class Guards:
    """All guards, in their order."""

    def __init__(self, guards: Sequence[GuardInForce]) -> None:
        self._before = [each for each in guards if each.overrides("before")]
        self._after = [each for each in guards if each.overrides("after")]
        self.on_text = [each for each in guards if each.overrides("on_text")]

    @property
    def watches_answers(self) -> bool:
        """Whether any guard looks at answers."""
        return bool(self._after or self.on_text)

    async def before(self, request: GuardRequest, caller: str | None) -> bytes:
        """The body that goes on. Raises ``GuardRefused`` or another ``RequestError``."""
        for each in self._before:
            said = await self._said(each, each.guard.before, request, caller)
            if said is not None:
                request = msgspec.structs.replace(request, body=said)
        return request.body

    async def after(self, answer: GuardAnswer) -> bytes:
        """The body that the client gets. Raises as ``before``."""
        for each in self._after:
            said = await self._said(each, each.guard.after, answer)
            if said is not None:
                answer = msgspec.structs.replace(answer, body=said)
        return answer.body

    async def _said(self, each: GuardInForce, method: Callable[..., Awaitable[object]], *facts: object) -> bytes | None:
        """The body in place of what the guard was asked about, if it changes that."""
        try:
            said = await run_within(each.timeout, await_plugin(each.plugin, method, *facts))
            if isinstance(said, Refuse):
                raise refusal(each.plugin, said)
            if said is None:
                return None
            if isinstance(said, Change) and isinstance(said.body, (bytes, dict)):
                return said.body if isinstance(said.body, bytes) else msgspec.json.encode(said.body)
            raise wrong_result(each.plugin, f"must return None, Refuse or Change, got {shown(said)}")
        except GuardRefused:
            raise
        except TimeoutError:
            log_plugin_failure(each.plugin, f"did not answer within {each.timeout:g} s")
            if not each.passes:
                text = f"The {each.plugin} did not answer within {each.timeout:g} s"
                raise GuardFailed(text, details=each.plugin.details) from None
        except RequestError:
            if not each.passes:
                raise
        return None


class GuardedText:
    """One text of one stream on its way through one guard, which holds back its end."""

    def __init__(self, guard: GuardInForce) -> None:
        self._guard = guard
        self._held = ""

    def passed(self, text: str, *, last: bool) -> str:
        """What goes on when ``text`` has come. Raises ``RequestError``. After the ``last`` text, nothing is held."""
        whole = self._held + text
        if not whole:
            return ""
        said = self._say(whole)
        keep = 0 if last else min(len(said), max(0, self._guard.guard.look_back))
        self._held = said[len(said) - keep :]
        return said[: len(said) - keep]

    def _say(self, text: str) -> str:
        plugin = self._guard.plugin
        try:
            said = self._guard.guard.on_text(text)
        except BaseException as error:
            failure = error if isinstance(error, RequestError) else plugin_failed(plugin, error)
            if self._guard.passes:
                return text
            raise failure from error
        if isinstance(said, Refuse):
            raise refusal(plugin, said)
        if said is not None and not isinstance(said, str):
            if self._guard.passes:
                return text
            raise wrong_result(plugin, f"must return None, a text or Refuse, got {shown(said)}")
        return text if said is None else said


def refusal(plugin: PluginId, said: Refuse) -> RequestError:
    """The error that the client gets."""
    if not (_LEAST_STATUS <= said.status <= _MOST_STATUS and said.code and isinstance(said.message, str)):
        problem = f"must refuse with a status from {_LEAST_STATUS} to {_MOST_STATUS}, a code and a message"
        return wrong_result(plugin, f"{problem}, got {shown(said)}")
    return GuardRefused(said.status, said.code, said.message)
