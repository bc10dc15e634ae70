"""Lines of comma-separated values, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from enginehouse.requests import escaped

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """``rows`` as CSV. Clients choose texts, so none of them is a formula, nor has control characters."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes a text with an apostrophe before it as it is (OWASP, CSV injection)."""
    if not isinstance(value, str):
        return value
    return f"'{escaped(value)}" if value.startswith(_FORMULA) else escaped(value)
