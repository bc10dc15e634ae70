from __future__ import annotations

from importlib.util import find_spec

import pytest

PACKAGES = {
    "envoy.service.ext_proc": "xds-protos",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "cryptography": "cryptography",
}


def missing() -> list[str]:
    """The packages that are not installed."""
    return [package for module, package in PACKAGES.items() if not _found(module)]


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_all_packages_are_installed() -> None:
    if packages := missing():
        pytest.skip(f"not installed, so most tests are left out: {', '.join(packages)}")
    assert _found("enginehouse_envoy")
