"""Lines that clients begin a system prompt with, that are new in each request and mean nothing to a model.

A prefix cache ends at the first one. They differ from a date: that one tells the model something.
"""

from __future__ import annotations

from typing import Final

VOLATILE_LINES: Final[tuple[str, ...]] = ("x-anthropic-",)
"""How such a line begins.

- ``x-anthropic-billing-header: cc_version=...; cch=NONCE;`` of Claude Code: anthropics/claude-code#68900,
  waybarrios/vllm-mlx#277 (60,000 tokens read again in each turn), sgl-project/sglang#21064, 1rgs/claude-code-proxy#99;
  others of this form: musistudio/claude-code-router#1343.
"""


def without_volatile_lines(text: str) -> str:
    """Return ``text`` without the volatile lines at its beginning."""
    while text.startswith(VOLATILE_LINES):
        text = text.partition("\n")[2]
    return text
