"""What discoverers found joins a configuration."""

from __future__ import annotations

import msgspec
import pytest

from enginehouse import FoundBackend
from enginehouse.app.discovery.found_backends import FoundBackends, Joined, Source
from enginehouse.config.schema import Config, DiscoverySettings
from enginehouse.domain.replica import Role

CONFIG = msgspec.convert(
    {
        "backends": {"lab-own": {"url": "http://own:1"}},
        "models": {"lab-launched": {"driver": "sim"}},
        "hosts": {"rack": {"memory": 1000}},
    },
    Config,
)
A, B = FoundBackend(url="http://a:1"), FoundBackend(url="http://b:1")


class House:
    """What is found, and the configuration in force."""

    def __init__(self, *names: str) -> None:
        self.found = FoundBackends(CONFIG, ("openai", "sim"))
        for name in names:
            self.found.sources[name] = Source(name, DiscoverySettings(type="static"))

    def lists(self, source: str, **backends: FoundBackend) -> bool:
        changed = self.found.listed(self.found.sources[source], backends, now=1.0)
        self.join()
        return changed

    def join(self) -> None:
        self.found.commit(self.found.joined_to(self.joined.without_found(self.joined.config)))

    @property
    def joined(self) -> Joined:
        return self.found.in_force

    @property
    def backends(self) -> set[str]:
        return {*self.joined.config.backends} - {"lab-own"}


def test_found_backends_get_a_prefix_and_leave_again() -> None:
    house = House("lab", "cloud")
    assert house.lists("lab", a=A)
    assert house.lists("cloud", a=B)
    assert house.backends == {"lab-a", "cloud-a"}
    assert not house.lists("lab", a=A)
    assert house.lists("lab")
    assert house.backends == {"lab-a", "cloud-a"}
    assert house.found.draining() == {"lab-a"}
    house.found.left("lab-a")
    house.join()
    assert house.backends == {"cloud-a"}
    assert house.joined.without_found(house.joined.config) == CONFIG


def test_a_backend_that_returns_is_no_longer_leaving() -> None:
    house = House("lab")
    house.lists("lab", a=A)
    house.lists("lab")
    house.lists("lab", a=A)
    assert house.backends == {"lab-a"}
    assert not house.found.draining()


def test_a_removed_source_drains() -> None:
    house = House("lab")
    house.lists("lab", a=A)
    house.found.remove("lab")
    house.join()
    assert house.found.draining() == {"lab-a"}


@pytest.mark.parametrize(
    ("name", "backend", "why"),
    [
        ("own", A, "already"),
        ("launched", A, "already"),
        ("x", FoundBackend(url="http://x:1", driver="olama"), "no driver 'olama'"),
        ("x", FoundBackend(url="ftp://x:1"), "not the address"),
        ("x", FoundBackend(url="http://x:1", models={"m": {"context": 5}}), "models.m.context: unknown key"),
        ("x", FoundBackend(url="http://x:1", concurrency=-1), "concurrency"),
    ],
)
def test_what_the_configuration_cannot_have_is_left_out_with_its_reason(
    name: str, backend: FoundBackend, why: str
) -> None:
    house = House("lab")
    house.lists("lab", good=A, **{name: backend})
    assert house.backends == {"lab-good"}
    assert why in house.found.sources["lab"].problem
    house.lists("lab", good=A)
    assert house.found.sources["lab"].problem == ""
    assert not house.found.draining(), "it was never in force"


def test_all_that_a_backend_says_of_itself_is_in_force() -> None:
    house = House("lab")
    models = {"m": {"context_length": 5}}
    backend = FoundBackend(
        url="https://a:1", driver="sim", role=Role.DECODE, models=models, priority=2, concurrency=3,
        host="rack-7", node="n", unit="u", api_key="env:PATH", verify_tls=False, draining=True,
    )  # fmt: skip
    house.lists("lab", a=backend)
    settings = house.joined.config.backends["lab-a"]
    assert (settings.role, settings.priority, settings.concurrency, settings.verify_tls) == (Role.DECODE, 2, 3, False)
    assert isinstance(settings.models, dict)
    assert settings.models["m"].context_length == 5
    assert settings.api_key == "env:PATH", "a list cannot name a variable of this machine"
    host = house.joined.config.hosts["rack-7"]
    assert (host.node, host.unit) == ("n", "u")
    assert house.found.draining() == {"lab-a"}


def test_a_configured_host_wins_over_what_is_found() -> None:
    house = House("lab")
    house.lists("lab", a=FoundBackend(url="http://a:1", host="rack", node="n"))
    assert house.joined.config.hosts["rack"] == CONFIG.hosts["rack"]
