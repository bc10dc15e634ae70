"""The text of one choice on its way through a guard."""

from __future__ import annotations

from enginehouse_guards.active_guard import ActiveGuard
from enginehouse_kit.interceptors import Refuse


class GuardedText:
    """Holds back the end of the text, which the guard sees again together with what follows."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = guard
        self._held = ""

    def passed(self, text: str, *, last: bool) -> str | Refuse:
        """What the client gets of ``text`` and of what was held before. The ``last`` text leaves nothing held."""
        whole = self._held + text
        if not whole:
            return ""
        said = self._guard.on_text(whole)
        if isinstance(said, Refuse):
            return said
        keep = 0 if last else min(len(said), self._guard.look_back)
        self._held = said[len(said) - keep :]
        return said[: len(said) - keep]
