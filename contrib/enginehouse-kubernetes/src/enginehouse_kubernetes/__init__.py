"""Finds the engines that are pods of a Kubernetes cluster."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kubernetes.discoverer import KubernetesDiscoverer

__all__ = ["KubernetesDiscoverer"]


@hookimpl
def register_discoverers(register: Register[Discoverer]) -> None:
    register("kubernetes", KubernetesDiscoverer)
