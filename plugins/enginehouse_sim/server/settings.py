"""What a simulated engine was told at its launch."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of the command line, durations in seconds, lengths in tokens.

    ``concurrency``: most requests that run at once. ``control_port``: a second port, which keeps answering while the
    engine refuses connections. ``vision``, ``tools`` and ``json_mode`` are only published; ``None`` leaves them out.
    """

    models: tuple[str, ...] = ("sim",)
    host: str = "127.0.0.1"
    port: int = 8000
    control_port: int | None = None
    ttft: float = 0.05
    tpot: float = 0.01
    concurrency: int = 256
    context_length: int = 8192
    seed: int = 0
    api_key: str | None = None
    start_delay: float = 0.0
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
