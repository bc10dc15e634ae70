"""One cluster for all modules: it takes half a minute to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_nodes import TwoNodes


@pytest.fixture(scope="session")
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes(Path("/tmp") / f"eh-ray-{os.getpid()}")
    try:
        yield nodes
    finally:
        nodes.close()
