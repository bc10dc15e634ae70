"""The drivers ``llamacpp`` and ``llamacpp_router``: llama.cpp's ``llama-server``."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_llamacpp.continuing import LlamaCppConfig
from enginehouse_llamacpp.driver import LlamaCppDriver
from enginehouse_llamacpp.router import LlamaCppRouterDriver

__all__ = ["LlamaCppConfig", "LlamaCppDriver", "LlamaCppRouterDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the drivers ``llamacpp`` and ``llamacpp_router``."""
    register("llamacpp", LlamaCppDriver)
    register("llamacpp_router", LlamaCppRouterDriver)
