"""Errors that plugins raise and get, beside their base classes, which ``enginehouse`` has."""

from __future__ import annotations

from enginehouse.domain.errors import (
    BodyTooLarge,
    BudgetExhausted,
    CannotContinue,
    Forbidden,
    LoadFailed,
    ModelNotFound,
    NotEnoughMemory,
    NotFound,
    Overloaded,
    PluginFailed,
    PullFailed,
    QueueFull,
    QueueTimeout,
    RateLimited,
    ReplicaLost,
    ShuttingDown,
    Unauthorized,
    UpstreamError,
    UpstreamTimeout,
    shortened,
)

__all__ = [
    "BodyTooLarge",
    "BudgetExhausted",
    "CannotContinue",
    "Forbidden",
    "LoadFailed",
    "ModelNotFound",
    "NotEnoughMemory",
    "NotFound",
    "Overloaded",
    "PluginFailed",
    "PullFailed",
    "QueueFull",
    "QueueTimeout",
    "RateLimited",
    "ReplicaLost",
    "ShuttingDown",
    "Unauthorized",
    "UpstreamError",
    "UpstreamTimeout",
    "shortened",
]
