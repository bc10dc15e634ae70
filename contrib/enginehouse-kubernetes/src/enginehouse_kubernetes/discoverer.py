"""The discoverer ``kubernetes``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from kubernetes_asyncio import client, config

from enginehouse import ConfigError
from enginehouse.backends import FoundBackend
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kubernetes.endpoints import Serving, found_backends
from enginehouse_kubernetes.mirror import Mirror

_log = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SERVICE_LABEL = "kubernetes.io/service-name"


class KubernetesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``service``, or ``selector`` for the labels of services' EndpointSlices; ``namespace`` by default the own one.

    ``kubeconfig``: a file, for a gateway outside of the cluster, and its ``context``. ``driver``, ``scheme`` and
    ``port`` (a name or a number) are those of all pods that do not say otherwise.
    """

    service: str = ""
    selector: str = ""
    namespace: str = ""
    kubeconfig: str = ""
    context: str | None = None
    driver: str = "openai"
    scheme: Literal["http", "https"] = "http"
    port: str | int = ""


class KubernetesDiscoverer(Discoverer):
    """Pods of a service, as its EndpointSlices and the pods' annotations describe them."""

    Config: ClassVar[type[KubernetesConfig]] = KubernetesConfig

    def __init__(self, config: KubernetesConfig) -> None:
        if bool(config.service) == bool(config.selector):
            remedy = "set one of the two"
            raise ConfigError("the discoverer 'kubernetes' takes a 'service' or a 'selector'", remedy=remedy)
        self._config = config
        self._kubeconfig = str(Path(config.kubeconfig).expanduser())
        self._serving = Serving(config.driver, config.scheme, str(config.port))
        self._labels = config.selector or f"{_SERVICE_LABEL}={config.service}"
        self._wrong: Mapping[str, str] = {}

    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        async with await self._connect() as api:
            namespace = self._config.namespace or _own_namespace()
            slices = Mirror(
                client.DiscoveryV1Api(api).list_namespaced_endpoint_slice,
                namespace=namespace,
                label_selector=self._labels,
            )
            pods = Mirror(client.CoreV1Api(api).list_namespaced_pod, namespace=namespace)
            async for _ in _either(slices, pods):
                found, wrong = found_backends(slices.objects.values(), pods.objects, self._serving)
                for name, why in wrong.items() - self._wrong.items():
                    _log.warning("The pod %s is left out, because of its annotations: %s", name, why)
                self._wrong = wrong
                yield found

    async def _connect(self) -> client.ApiClient:
        settings = client.Configuration()
        if self._config.kubeconfig:
            await config.load_kube_config(self._kubeconfig, context=self._config.context, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        return client.ApiClient(settings)


async def _either(*mirrors: Mirror) -> AsyncIterator[None]:
    """Yield after each change of any mirror, once all are filled. Raises what the first failing one raises."""
    changed = asyncio.Event()
    filled: set[Mirror] = set()

    async def follow(mirror: Mirror) -> None:
        async for _ in mirror.changes():
            filled.add(mirror)
            changed.set()

    following = [asyncio.ensure_future(follow(mirror)) for mirror in mirrors]
    try:
        while True:
            waiting = asyncio.ensure_future(changed.wait())
            done, _ = await asyncio.wait([waiting, *following], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for each in following:
                if each in done:
                    each.result()
            changed.clear()
            if len(filled) == len(mirrors):
                yield
    finally:
        for each in following:
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*following, return_exceptions=True)


def _own_namespace() -> str:
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
