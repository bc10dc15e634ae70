from __future__ import annotations

import pytest

from enginehouse.domain.errors import AliasCycle, ConfigErrors
from tests.support.config_files import Load, Refuse


def test_weights_must_sum_to_100(refuse: Refuse) -> None:
    error = refuse("[routing.weights]\npriority = 40")
    assert error.key == "routing.weights"
    assert error.problem == "priority 40 + load 30 + latency 20 is 90"


@pytest.mark.parametrize(
    ("aliases", "circle"),
    [
        ('a = "a"', '"a" -> "a"'),
        ('a = "b"\nb = "a"', '"a" -> "b" -> "a"'),
        ('a = "b"\nb = "c"\nc = "a"', '"a" -> "b" -> "c" -> "a"'),
        ('x = "a"\na = "b"\nb = "a"', '"a" -> "b" -> "a"'),
    ],
)
def test_a_circular_alias_is_refused_once_with_its_way(refuse: Refuse, aliases: str, circle: str) -> None:
    error = refuse(f"[routing.aliases]\n{aliases}")
    assert isinstance(error, AliasCycle)
    assert error.problem == f"circular alias {circle}"
    assert error.key == "routing.aliases.a"


def test_every_circle_of_aliases_is_reported(refuse: Refuse) -> None:
    error = refuse('[routing.aliases]\na = "a"\nb = "c"\nc = "b"')
    assert isinstance(error, ConfigErrors)
    assert [type(one) for one in error.errors] == [AliasCycle, AliasCycle]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8001",
        "https://engine.example.com",
        "http://[::1]:80",
        "http://h/prefix/",
        "HTTP://h",
    ],
)
def test_the_address_of_a_server_is_taken(load: Load, url: str) -> None:
    assert load(f'[backends.b]\nurl = "{url}"').config.backends["b"].url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8001",
        "ftp://h",
        "http://",
        "http://:80",
        "http://h:port",
        "http://h:70000",
        "http://h:0",
        "http://[::1",
        "http://user:pw@h",
        "http://h?x=1",
        "http://h#x",
        "http://h/a b",
        "http://h/\\n",
    ],
)
def test_an_invalid_url_is_refused(refuse: Refuse, url: str) -> None:
    error = refuse(f'[backends.gpu-1]\nurl = "{url}"')
    assert error.key == "backends.gpu-1.url"
    assert "http://host:port" in error.remedy


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[backends.b]\nurl = "http://h"\nhost = "gpuu"', "backends.b.host"),
        ('[models.m]\nhost = "gpuu"', "models.m.host"),
        ('[models.m]\nhost = ["gpu", "gpuu"]', "models.m.host"),
    ],
)
def test_an_unknown_host_is_refused_with_what_was_meant(refuse: Refuse, text: str, key: str) -> None:
    error = refuse(f"{text}\n[hosts.gpu]")
    assert (error.key, error.problem) == (key, 'there is no host "gpuu"')
    assert error.remedy == 'did you mean "gpu"?'


def test_a_model_names_each_host_once(refuse: Refuse) -> None:
    error = refuse('[models.m]\nhost = ["gpu", "gpu"]\n[hosts.gpu]')
    assert (error.key, error.problem) == ("models.m.host", "names a host twice")


def test_the_error_of_an_unknown_host_says_how_to_add_it(refuse: Refuse) -> None:
    assert refuse('[models.m]\nhost = "xyz"').remedy == "add [hosts.xyz], or name one of local"


def test_a_host_named_local_always_exists(load: Load) -> None:
    assert load('[models.m]\nhost = "local"').config.hosts == {}


def test_a_command_must_say_where_the_engine_listens(refuse: Refuse) -> None:
    error = refuse('[models.m]\ncommand = "llama-server --port 8080"')
    assert (error.key, error.problem) == ("models.m.command", "does not contain ${port}")


@pytest.mark.parametrize("path", ["health", "None", "/a b", "/é", "/a\\nb", "http://h/health"])
def test_a_health_path_must_be_one(refuse: Refuse, path: str) -> None:
    error = refuse(f'[models.m]\nhealth_path = "{path}"')
    assert (error.key, error.problem) == ("models.m.health_path", "is not a path")
    assert '"none"' in error.remedy


@pytest.mark.parametrize("path", ["", "none", "/", "/ready?deep=1"])
def test_a_health_path_may_be_left_out_or_be_none(load: Load, path: str) -> None:
    assert load(f'[models.m]\nhealth_path = "{path}"').config.models["m"].health_path == path


def test_a_backend_may_not_take_the_name_of_a_launched_model(refuse: Refuse) -> None:
    error = refuse('[backends.m]\nurl = "http://h"\n[models.m]\npath = "m.gguf"')
    assert (error.key, error.problem) == ("backends.m", "[models.m] launches a backend of the same name")


def test_the_largest_body_fits_into_the_memory_for_bodies(refuse: Refuse, load: Load) -> None:
    error = refuse('[server]\nmax_body = "2MiB"\nmax_body_memory = "1MiB"')
    assert (error.key, error.remedy) == ("server.max_body_memory", "set it to 2MiB at least")
    assert load('[server]\nmax_body_memory = "0"').config.server.max_body_memory == 0


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("[models.m]\nreplicas = { min = 3, max = 2 }", "models.m.replicas.min", "3 is more than max, which is 2"),
        ("[models.m]\nreplicas = { min = 3 }", "models.m.replicas.max", "is missing"),
        ("[models.m]\nreplicas = { min = 3, max = 0 }", "models.m.replicas.max", "expected a whole number, 1 or more"),
        ("[models.m]\nreplicas = 'many'", "models.m.replicas", "expected a whole number, 1 or more or a table"),
        ("[hosts.h]\nports = '5-4'", "hosts.h.ports", 'expected ports such as "20000-32767", got "5-4"'),
        ("[hosts.h]\nports = '1-70000'", "hosts.h.ports", "expected ports"),
    ],
)
def test_ranges_of_replicas_and_of_ports(refuse: Refuse, text: str, key: str, problem: str) -> None:
    error = refuse(text)
    assert error.key == key
    assert problem in error.problem


@pytest.mark.parametrize("key", ["endpoint", "replay"])
@pytest.mark.parametrize("address", ["ipc:///tmp/events", "tcp://10.0.0.5", "tcp://10.0.0.5:*"])
def test_each_rank_of_an_engine_needs_a_port(refuse: Refuse, load: Load, key: str, address: str) -> None:
    addresses = {"endpoint": "tcp://10.0.0.5:5557", key: address}
    written = ", ".join(f'{name} = "{each}"' for name, each in addresses.items())
    backend = "[backends.a]\nurl = 'http://h'\nkv_events = {{ {}, ranks = {} }}"
    assert refuse(backend.format(written, 2)).key == f"backends.a.kv_events.{key}"
    load(backend.format(written, 1))
