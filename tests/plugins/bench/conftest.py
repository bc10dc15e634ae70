from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_engine import StartEngine, scripted_engines


@pytest.fixture
async def engine() -> AsyncIterator[StartEngine]:
    async with scripted_engines() as start:
        yield start
