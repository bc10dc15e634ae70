"""The guard ``mask_emails``."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import Change

_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,63}\.[A-Za-z]{2,24}")
_MASK = "[e-mail]"


def mask(text: str) -> str:
    """``text`` without e-mail addresses."""
    return _ADDRESS.sub(_MASK, text) if "@" in text else text


class MaskEmailsGuard(Guard):
    """Replaces e-mail addresses. Bodies are decoded first: JSON may write each character as an escape."""

    look_back: ClassVar[int] = 160

    async def before(self, request: GuardRequest, caller: str | None) -> Change | None:
        return _masked(request.body)

    async def after(self, answer: GuardAnswer) -> Change | None:
        return _masked(answer.body)

    def on_text(self, piece: str) -> str | None:
        return mask(piece)


def _masked(body: bytes) -> Change | None:
    if b"@" not in body and b"u0040" not in body:
        return None
    try:
        asked = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    changed = _with_masks(asked)
    return Change(msgspec.json.encode(changed)) if changed != asked else None


def _with_masks(value: Any) -> Any:
    """``value`` with its texts masked, also those in the arguments of tool calls, which are JSON in a text."""
    if isinstance(value, dict):
        return {name: _with_masks(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_masks(item) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("{") and (inner := _masked(value.encode(errors="surrogatepass"))):
        return inner.body.decode() if isinstance(inner.body, bytes) else value
    return mask(value)
