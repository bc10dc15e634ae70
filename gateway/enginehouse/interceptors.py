"""Interceptors and guards, for plugins that import them here: their interfaces are in ``enginehouse_kit``."""

from enginehouse._moved import find

__all__: list[str] = []

__getattr__ = find
