"""The service keeps the rules of services."""

from __future__ import annotations

from enginehouse_kit.testing import check_service, create


def test_it_keeps_the_rules_of_a_service() -> None:
    check_service(lambda: create("service", "batches"))
