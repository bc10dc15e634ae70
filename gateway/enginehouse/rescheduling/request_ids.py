"""The ids that engines give to requests."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^(?:chat)?cmpl-")


def gateway_request_id(engine_id: str) -> str:
    """The gateway's id of a request from its engine's: vLLM makes ``cmpl-ID`` or ``chatcmpl-ID`` of it."""
    return _PREFIX.sub("", engine_id)
