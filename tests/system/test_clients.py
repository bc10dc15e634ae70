"""Real clients of pip and npm, as far as ``python -m tools.clients install`` has brought them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tools.clients.__main__ import CLIENTS, NPM, PYTHON, gateways, try_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1300),
    pytest.mark.skipif(not (PYTHON.exists() and NPM.exists()), reason="needs: python -m tools.clients install"),
]


@pytest.fixture(scope="module")
def served() -> Iterator[Mapping[str, str]]:
    with gateways() as found:
        yield found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_can_do_all_that_it_tries(client: str, served: Mapping[str, str]) -> None:
    assert {engine: set(try_client(client, url).values()) for engine, url in served.items()} == {
        engine: {"ok"} for engine in served
    }
