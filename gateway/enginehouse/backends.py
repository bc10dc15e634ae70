"""Backends and replicas: found, described by an operator, and wanted by a scaler."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.model_settings import ModelSettings, ReplicaRange, SizedRange
from enginehouse.config.schema import DiscoverySettings
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.interfaces.cache_keepers import CacheKeeper, LaunchedBackend
from enginehouse.interfaces.model_servers import LoadingBackend, ModelServer
from enginehouse.interfaces.services import FoundBackend

__all__ = [
    "BackendStatus",
    "CacheKeeper",
    "DiscoverySettings",
    "FoundBackend",
    "LaunchedBackend",
    "LoadingBackend",
    "ModelServer",
    "ModelSettings",
    "ReplicaRange",
    "SizedRange",
]

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
