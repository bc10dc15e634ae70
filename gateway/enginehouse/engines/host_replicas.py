"""The replicas of one host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from enginehouse.engines.managed_replica import ManagedReplica


class HostReplicas:
    """The replicas that a host launches or loads: ``kept``, and ``retiring`` until their engines have stopped."""

    def __init__(self, managed: Mapping[str, ManagedReplica]) -> None:
        self.all = dict(managed)
        self.retiring: dict[str, asyncio.Task[None]] = {}

    def __getitem__(self, replica: str) -> ManagedReplica:
        return self.all[replica]

    def __contains__(self, replica: str) -> bool:
        return replica in self.all

    def put(self, managed: Mapping[str, ManagedReplica]) -> None:
        """Replace the kept replicas."""
        self.all = {**managed, **{replica: self.all[replica] for replica in self.retiring}}

    def remove(self, replica: str) -> None:
        """Remove a replica whose engine has stopped."""
        del self.all[replica]
        self.retiring.pop(replica, None)

    def kept(self) -> Mapping[str, ManagedReplica]:
        """The replicas that are not being retired."""
        return {replica: managed for replica, managed in self.all.items() if replica not in self.retiring}

    @property
    def models(self) -> Sequence[str]:
        """The models of the kept replicas."""
        return [managed.model_name for managed in self.kept().values()]

    @property
    def backends(self) -> Sequence[str]:
        """The backends of the kept replicas."""
        return [managed.backend for managed in self.kept().values()]

    def of_model(self, model: str) -> Sequence[str]:
        """The kept replicas of ``model``, in their order."""
        return [replica for replica, managed in self.kept().items() if managed.model_name == model]

    def of_backend(self, backend: str) -> Sequence[str]:
        """The kept replicas that are launched or loaded at ``backend``."""
        return [replica for replica, managed in self.kept().items() if managed.backend == backend]

    def ttls(self) -> Mapping[str, float]:
        """The idle seconds after which each replica is put to sleep or stopped."""
        return {replica: managed.model.ttl for replica, managed in self.all.items()}
