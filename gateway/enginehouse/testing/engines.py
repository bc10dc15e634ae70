"""Simulated engines as real processes, for tests."""

from enginehouse_kit.engines import SeenRequest as SeenRequest
from enginehouse_kit.engines import SimEngine as SimEngine
