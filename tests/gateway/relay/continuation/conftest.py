"""Engines whose streams can be continued."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.model_engine import ModelEngine, StartModelEngine, start_model_engine


@pytest.fixture
async def model_engine() -> AsyncIterator[StartModelEngine]:
    """Starts engines that stream what one model says."""
    engines: list[ModelEngine] = []

    async def start() -> ModelEngine:
        engines.append(await start_model_engine())
        return engines[-1]

    yield start
    for each in engines:
        await each.close()
