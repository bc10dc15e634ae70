"""Whole gateways with guards, as the tests of the relay open them."""

from __future__ import annotations

from tests.gateway.relay.conftest import engine as engine
from tests.gateway.relay.conftest import house as house
from tests.gateway.relay.conftest import pytest_generate_tests as pytest_generate_tests
from tests.gateway.relay.conftest import served_by as served_by
