"""A transport without a network."""

from __future__ import annotations

import asyncio
from typing import Any


class FakeTransport(asyncio.Transport):
    """Keeps what is written to it. ``reads``: it is not paused."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.closing = False
        self.reads = True

    def set_socket(self, socket: object) -> None:
        """Have ``socket`` as the one below."""
        self._extra: Any = {"socket": socket}

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True
