"""The ports of ``hosts.*.ports``."""

from __future__ import annotations

import re

_RANGE = re.compile(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*")
_LAST = 65_535


def parse_ports(text: str) -> tuple[int, int]:
    """The first and the last port of a text such as ``"20000-32767"``. Raises ``ValueError`` for any other text."""
    if found := _RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2])
        if 0 < first <= last <= _LAST:
            return first, last
    raise ValueError(f'expected ports such as "20000-32767", got "{text}"')
