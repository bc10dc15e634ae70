"""Protocols of clients: what the gateway itself sends and gets."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.interfaces.protocols import PageRequest as PageRequest
from enginehouse.interfaces.protocols import TranslatedRequest as TranslatedRequest
from enginehouse.interfaces.protocols import no_engine as no_engine

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
