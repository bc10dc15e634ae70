"""The ids that engines give to requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PREFIX = re.compile(r"^(?:chat)?cmpl-")


def gateway_request_ids(engine_id: str) -> Sequence[str]:
    """What the gateway's id of an engine's request may be, the whole one first.

    vLLM puts ``cmpl-`` or ``chatcmpl-`` before it, and ``-0`` and perhaps another part after it; Llumnix, ``+`` and a
    number.
    """
    whole = _PREFIX.sub("", engine_id)
    ids = [whole, whole.partition("+")[0]]
    for _ in range(2):
        ids.append(ids[-1].rpartition("-")[0])
    return [id for id in dict.fromkeys(ids) if id]
