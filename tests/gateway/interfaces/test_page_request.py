"""Requests for pages of protocols, as tests of a protocol make them."""

from __future__ import annotations

import pytest

from enginehouse.errors import NotFound
from enginehouse.protocols import PageRequest


def test_one_without_a_gateway_knows_no_engine() -> None:
    request = PageRequest("GET", "/api/tags", {}, b"", [], "")
    with pytest.raises(NotFound, match="no backend 'a'"):
        request.engine("a")
