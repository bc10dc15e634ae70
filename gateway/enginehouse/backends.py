"""Backends and replicas: found, described by an operator, and wanted by a scaler."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.model_settings import ModelSettings as ModelSettings
from enginehouse.config.model_settings import ReplicaRange as ReplicaRange
from enginehouse.config.model_settings import SizedRange as SizedRange
from enginehouse.config.schema import DiscoverySettings as DiscoverySettings
from enginehouse.domain.backend_status import BackendStatus as BackendStatus
from enginehouse.interfaces.cache_keepers import CacheKeeper as CacheKeeper
from enginehouse.interfaces.cache_keepers import LaunchedBackend as LaunchedBackend
from enginehouse.interfaces.model_servers import LoadingBackend as LoadingBackend
from enginehouse.interfaces.model_servers import ModelServer as ModelServer
from enginehouse.interfaces.services import FoundBackend as FoundBackend

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
