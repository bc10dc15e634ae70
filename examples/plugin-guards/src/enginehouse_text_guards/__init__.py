"""Guards: mask e-mail addresses, and ask a moderation service."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_kit.guards import Guard
from enginehouse_text_guards.mask_emails import MaskEmailsGuard
from enginehouse_text_guards.moderation import ModerationGuard


@hookimpl
def register_guards(register: Register[Guard]) -> None:
    register("mask_emails", MaskEmailsGuard)
    register("moderation", ModerationGuard)
