from __future__ import annotations

from typing import Any

import pytest

from enginehouse import Service
from enginehouse.services import ServiceGateway
from enginehouse_kit.testing import check_service


class Regular(Service):
    def __init__(self, seconds: Any) -> None:
        self._seconds = seconds

    def start(self, gateway: ServiceGateway) -> None:
        gateway.every(self._seconds, lambda: None)


@pytest.mark.parametrize("seconds", ["1s", 0, -1.0, None])
def test_an_interval_that_is_none_is_caught(seconds: Any) -> None:
    with pytest.raises(AssertionError, match="every takes a number of seconds, more than 0, got"):
        check_service(lambda: Regular(seconds))


def test_an_interval_in_seconds_passes() -> None:
    check_service(lambda: Regular(1))
