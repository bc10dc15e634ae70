"""The guard ``mask_emails``."""

from __future__ import annotations

import re
from typing import ClassVar

from enginehouse import Change, Guard, GuardAnswer, GuardRequest

_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,63}\.[A-Za-z]{2,24}")
_MASK = "[e-mail]"


def mask(text: str) -> str:
    """``text`` without e-mail addresses."""
    return _ADDRESS.sub(_MASK, text) if "@" in text else text


class MaskEmailsGuard(Guard):
    """Replaces e-mail addresses. JSON has them as they are, so bodies need not be decoded."""

    look_back: ClassVar[int] = 160

    async def before(self, request: GuardRequest, caller: str | None) -> Change | None:
        return _masked(request.body)

    async def after(self, answer: GuardAnswer) -> Change | None:
        return _masked(answer.body)

    def on_text(self, piece: str) -> str | None:
        return mask(piece)


def _masked(body: bytes) -> Change | None:
    if b"@" not in body:
        return None
    text = body.decode(errors="surrogateescape")
    return Change(mask(text).encode(errors="surrogateescape"))
