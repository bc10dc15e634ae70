"""What a service may ask of its gateway."""

from __future__ import annotations

from enginehouse.domain.metric_info import MetricInfo as MetricInfo
from enginehouse.interfaces.services import Configured as Configured
from enginehouse.interfaces.services import EngineFigures as EngineFigures
from enginehouse.interfaces.services import GatewayBackends as GatewayBackends
from enginehouse.interfaces.services import GatewayCaller as GatewayCaller
from enginehouse.interfaces.services import GatewayModels as GatewayModels
from enginehouse.interfaces.services import GatewayPages as GatewayPages
from enginehouse.interfaces.services import GatewayRequest as GatewayRequest
from enginehouse.interfaces.services import GatewayRequests as GatewayRequests
from enginehouse.interfaces.services import Measured as Measured
from enginehouse.interfaces.services import ServiceGateway as ServiceGateway
from enginehouse.interfaces.services import Submitted as Submitted
