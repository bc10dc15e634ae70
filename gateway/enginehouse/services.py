"""What a service may ask of its gateway."""

from __future__ import annotations

from enginehouse.domain.metric_info import MetricInfo
from enginehouse.interfaces.services import (
    Configured,
    EngineFigures,
    GatewayBackends,
    GatewayCaller,
    GatewayModels,
    GatewayPages,
    GatewayRequest,
    GatewayRequests,
    Measured,
    ServiceGateway,
    Submitted,
)

__all__ = [
    "Configured",
    "EngineFigures",
    "GatewayBackends",
    "GatewayCaller",
    "GatewayModels",
    "GatewayPages",
    "GatewayRequest",
    "GatewayRequests",
    "Measured",
    "MetricInfo",
    "ServiceGateway",
    "Submitted",
]
