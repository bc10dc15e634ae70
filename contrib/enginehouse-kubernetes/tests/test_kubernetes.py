from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from enginehouse_kubernetes.discoverer import KubernetesConfig, KubernetesDiscoverer
from enginehouse_kubernetes.endpoints import Serving, found_backends
from fake_api_server import PODS, SLICES, FakeApiServer, endpoint, endpoint_slice, pod

from enginehouse import ConfigError, Role
from enginehouse.backends import FoundBackend
from enginehouse_kit.testing import create

SERVING = Serving("vllm", "http", "http")
Lists = AsyncIterator[Mapping[str, FoundBackend]]


def run(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def ran(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 30))

    return ran


def found(*endpoints: Mapping[str, Any], pods: Mapping[str, Any] | None = None, port: str = "http") -> Any:
    return found_backends([endpoint_slice(*endpoints)], pods or {}, SERVING._replace(port=port))[0]


def discoverer(server: FakeApiServer, folder: Path) -> KubernetesDiscoverer:
    config = KubernetesConfig(service="vllm", namespace="llm", kubeconfig=server.kubeconfig(folder), driver="vllm")
    return KubernetesDiscoverer(config)


async def until(lists: Lists, wanted: set[str]) -> Mapping[str, FoundBackend]:
    async for each in lists:
        if each.keys() == wanted:
            return each
    raise AssertionError("the list ended")


# --- pods and endpoints


def test_a_ready_pod_is_a_backend_with_its_failure_domains() -> None:
    assert found(endpoint("a")) == {
        "a": FoundBackend(url="http://10.0.0.1:8000", driver="vllm", node="node-1", unit="zone-a", labels={"pod": "a"})
    }


def test_annotations_say_what_a_pod_serves() -> None:
    says = pod("a", driver="sglang", models="m, n", role="decode", priority="2", concurrency="8")
    backend = found(endpoint("a"), pods={"a": says})["a"]
    assert (backend.driver, backend.models, backend.role) == ("sglang", ["m", "n"], Role.DECODE)
    assert (backend.priority, backend.concurrency) == (2, 8)


@pytest.mark.parametrize("annotation", [{"role": "boss"}, {"priority": "high"}, {"concurrency": "0.5"}])
def test_a_pod_whose_annotations_are_wrong_keeps_no_other_from_being_found(annotation: dict[str, str]) -> None:
    endpoints = endpoint_slice(endpoint("a"), endpoint("b", "10.0.0.2"))
    backends, wrong = found_backends([endpoints], {"a": pod("a", **annotation)}, SERVING)
    assert backends.keys() == {"b"}
    assert wrong.keys() == {"a"}


def test_the_log_names_a_pod_with_wrong_annotations_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @run
    async def test(folder: Path) -> None:
        server = FakeApiServer()
        server.put(PODS, pod("a", role="boss"))
        server.put(SLICES, endpoint_slice(endpoint("a"), endpoint("b", "10.0.0.2")))
        await server.start()
        lists = discoverer(server, folder).watch()
        await until(lists, {"b"})
        await watched(server)
        server.put(SLICES, endpoint_slice(endpoint("a"), endpoint("c", "10.0.0.3")))
        await until(lists, {"c"})
        await server.stop()

    test(tmp_path)
    told = [each.getMessage() for each in caplog.records if each.name.startswith("enginehouse_kubernetes")]
    assert len(told) == 1
    assert "The pod a is left out" in told[0]


@pytest.mark.parametrize(
    ("conditions", "draining"),
    [
        ({"ready": True}, False),
        ({"ready": False}, None),
        ({"ready": False, "terminating": True, "serving": True}, True),
        ({"ready": False, "terminating": True, "serving": False}, None),
    ],
)
def test_a_pod_that_terminates_drains_while_it_serves(conditions: dict[str, bool], draining: bool | None) -> None:
    backend = found(endpoint("a", "10.0.0.1", **conditions)).get("a")
    assert (backend and backend.draining) == draining


def test_a_pod_that_is_being_deleted_drains_before_its_endpoint_says_so() -> None:
    deleted = pod("a")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert found(endpoint("a"), pods={"a": deleted})["a"].draining


@pytest.mark.parametrize(("port", "url"), [("", ":9000"), ("http", ":8000"), ("8000", ":8000"), ("7000", ":7000")])
def test_a_port_has_a_name_or_a_number(port: str, url: str) -> None:
    assert found(endpoint("a"), port=port)["a"].url.endswith(url)


def test_a_port_that_no_slice_has_offers_nothing() -> None:
    assert found(endpoint("a"), port="grpc") == {}


def test_an_address_of_ipv6() -> None:
    assert found(endpoint("a", "fd00::1"))["a"].url == "http://[fd00::1]:8000"


# --- the API server


@run
async def test_pods_come_and_go_as_the_watch_tells(folder: Path) -> None:
    server = FakeApiServer()
    server.put(SLICES, endpoint_slice(endpoint("a")))
    server.put(PODS, pod("a", models="m"))
    await server.start()
    lists = discoverer(server, folder).watch()
    assert (await until(lists, {"a"}))["a"].models == ["m"]
    asked = {path: (query, token) for path, query, token in server.asked}  # pods and slices are asked for at once
    query, token = asked["/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"]
    assert query["labelSelector"] == "kubernetes.io/service-name=vllm"
    assert token == "Bearer secret-token"
    await watched(server)
    server.bookmark()
    server.put(SLICES, endpoint_slice(endpoint("a"), endpoint("b", "10.0.0.2")))
    await until(lists, {"a", "b"})
    server.put(SLICES, endpoint_slice(endpoint("b", "10.0.0.2")))
    await until(lists, {"b"})
    server.delete(SLICES, "vllm-1")
    await until(lists, set())
    await server.stop()


@run
async def test_what_a_cut_watch_or_a_lost_history_missed_is_listed_anew(folder: Path) -> None:
    server = FakeApiServer()
    server.put(SLICES, endpoint_slice(endpoint("a")))
    await server.start()
    lists = discoverer(server, folder).watch()
    await until(lists, {"a"})
    for pods, end in (("b", server.cut), ("c", server.gone)):
        await watched(server)
        server.put(SLICES, endpoint_slice(endpoint(pods)), seen=False)
        end()
        await until(lists, {pods})
    await server.stop()


@run
async def test_a_server_that_is_down_fails_the_watch_and_the_next_one_finds_it_again(folder: Path) -> None:
    server = FakeApiServer()
    server.put(SLICES, endpoint_slice(endpoint("a")))
    await server.start()
    it = discoverer(server, folder)
    lists = it.watch()
    await until(lists, {"a"})
    await watched(server)
    await server.stop()
    with pytest.raises(Exception, match="Cannot connect"):
        await until(lists, {"never"})
    await server.start()
    await until(it.watch(), {"a"})
    await server.stop()


@pytest.mark.parametrize("silent", ["list", "watch"])
def test_a_server_that_says_nothing_any_more_fails_the_watch(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose machine has lost its power: nobody closes the connection."""
    monkeypatch.setattr("enginehouse_kubernetes.mirror._PATIENCE_S", 0.2)
    monkeypatch.setattr("enginehouse_kubernetes.mirror._WATCH_S", 1)

    @run
    async def test(folder: Path) -> None:
        server = FakeApiServer()
        server.silent = silent
        server.put(SLICES, endpoint_slice(endpoint("a")))
        await server.start()
        with pytest.raises(TimeoutError):
            await until(discoverer(server, folder).watch(), {"never"})
        await server.stop()

    test(tmp_path)


async def watched(server: FakeApiServer) -> None:
    while not server.watched():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0)


# --- the plugin


def test_it_is_made_by_its_type() -> None:
    made = create("discoverer", "kubernetes", {"service": "vllm", "port": 8000})
    assert isinstance(made, KubernetesDiscoverer)


@pytest.mark.parametrize("config", [KubernetesConfig(), KubernetesConfig(service="a", selector="b=c")])
def test_it_takes_a_service_or_a_selector(config: KubernetesConfig) -> None:
    with pytest.raises(ConfigError):
        KubernetesDiscoverer(config)
