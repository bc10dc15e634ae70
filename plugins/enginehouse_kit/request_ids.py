"""The ids that engines give to requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["gateway_request_ids"]

_PREFIX = re.compile(r"^(?:chat)?cmpl-")


def gateway_request_ids(engine_id: str) -> Sequence[str]:
    """Return the possible ids at the gateway of an engine's request, beginning with the whole id.

    vLLM adds ``cmpl-`` or ``chatcmpl-`` in front and ``-0`` and perhaps another part at the end; Llumnix adds ``+`` and
    a number at the end.
    """
    whole = _PREFIX.sub("", engine_id)
    ids = [whole, whole.partition("+")[0]]
    for _ in range(2):
        ids.append(ids[-1].rpartition("-")[0])
    return [id for id in dict.fromkeys(ids) if id]
