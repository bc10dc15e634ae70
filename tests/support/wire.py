"""A transport without a socket."""

from __future__ import annotations

import asyncio


class Wire(asyncio.Transport):
    """Takes everything at once."""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.last = data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
