"""Engines whose streams can be continued."""

from __future__ import annotations

from tests.gateway.relay.continuation.conftest import model_engine

__all__ = ["model_engine"]
