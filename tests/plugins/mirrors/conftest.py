"""The gateways of the relay's tests, whose observers see what requests asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.relay.conftest import engine as engine
from tests.gateway.relay.conftest import house as house
from tests.gateway.relay.conftest import launched as launched
from tests.gateway.relay.conftest import pytest_generate_tests as pytest_generate_tests
from tests.gateway.relay.conftest import registry as registry
from tests.gateway.relay.conftest import served_by as served_by
from tests.support.served_gateway import HasUrl, OpenGateway, ServedGateway


@pytest.fixture
def mirroring(house: OpenGateway) -> OpenGateway:
    """Opens gateways: ``await mirroring(engine, routing={"mirrors": {...}})``."""

    async def open_gateway(*engines: HasUrl, **sections: Any) -> ServedGateway:
        made = await house(*engines, **sections, telemetry={"access_log": False})
        made.gateway.path.observe()
        return made

    return open_gateway
