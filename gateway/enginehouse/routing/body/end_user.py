"""Finds the end user for whom a client asks."""

from __future__ import annotations

from hashlib import blake2b

from enginehouse.domain.client_names import kept_name
from enginehouse.domain.request import Body


def end_user(body: Body, hashed: bool) -> str | None:
    """The end user that a body names: OpenAI's ``safety_identifier`` or ``user``, or Anthropic's ``metadata.user_id``.

    A hash takes the place of a long name. ``hashed``: also of a short one, which is then in no log.
    """
    named = body.safety_identifier or body.user
    if not isinstance(named, str) and isinstance(body.metadata, dict):
        named = body.metadata.get("user_id")
    if not isinstance(named, str) or not named:
        return None
    return blake2b(named.encode(), digest_size=12).hexdigest() if hashed else kept_name(named)
