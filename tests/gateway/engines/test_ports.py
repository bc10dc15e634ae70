from __future__ import annotations

import socket

import pytest

from enginehouse.engines.launches import Ports
from enginehouse.errors import LoadFailed


def _three_free_ports() -> Ports:
    """Three neighbouring ports that nobody uses now, and that no engine of another test gets."""
    for first in range(61_000, 62_000, 3):
        ports = Ports(first, first + 2)
        try:
            for _ in range(3):
                ports.take()
        except LoadFailed:
            continue
        return Ports(first, first + 2)
    pytest.skip("no three neighbouring ports are free")


@pytest.mark.usefixtures("all_ports_are_free")
def test_a_port_is_not_handed_out_twice() -> None:
    ports = Ports(23_000, 23_002)
    assert len({ports.take(), ports.take(), ports.take()}) == 3
    with pytest.raises(LoadFailed, match="No free port between"):
        ports.take()


@pytest.mark.usefixtures("all_ports_are_free")
def test_a_port_given_back_is_handed_out_again_but_not_next() -> None:
    ports = Ports(23_000, 23_002)
    first, second = ports.take(), ports.take()
    ports.give_back(first)
    third = ports.take()
    assert third not in (first, second)
    assert ports.take() == first


def test_a_port_that_somebody_listens_on_is_not_handed_out() -> None:
    ports = _three_free_ports()
    used = ports.take()
    ports.give_back(used)
    with socket.create_server(("127.0.0.1", used)):
        assert used not in (ports.take(), ports.take())
        with pytest.raises(LoadFailed):
            ports.take()


def test_two_gateways_do_not_begin_at_the_same_port() -> None:
    assert len({Ports().take() for _ in range(8)}) > 1
