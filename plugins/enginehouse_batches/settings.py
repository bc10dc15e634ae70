"""The parameters of batches."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from enginehouse import Period


class BatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[batches]``."""

    folder: Annotated[str, Meta(description="where files and results are kept; by default in the state folder")] = ""
    slots: Annotated[int, Meta(ge=1, description="the most lines at once at each engine")] = 4
    quiet: Annotated[Period, Meta(description="how long nobody has used a host before a batch loads a model on it")] = (
        30.0
    )
    swaps_per_hour: Annotated[
        int, Meta(ge=1, description="the most models that batches load on a host in an hour in which people use it")
    ] = 3
    max_lines: Annotated[int, Meta(ge=1, description="the most lines of a batch")] = 50_000
    max_batches: Annotated[int, Meta(ge=1, description="the most unfinished batches of a caller")] = 100
    max_files: Annotated[int, Meta(ge=1, description="the most files of a caller")] = 1000
    max_storage: Annotated[int, Meta(ge=1, description="the size of all files together", extra={"unit": "size"})] = (
        10 << 30
    )
    keep: Annotated[Period, Meta(description="how long files and ended batches are kept")] = 30 * 86_400.0
