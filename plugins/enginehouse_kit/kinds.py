"""The kinds of types whose interfaces bundled plugins use and the core does not: entry points ``enginehouse.kinds``."""

from __future__ import annotations

from enginehouse import Kind
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kit.guards import Guard
from enginehouse_kit.interceptors import Interceptor
from enginehouse_kit.limit_stores import LimitStore
from enginehouse_kit.protocols import Protocol
from enginehouse_kit.rescheduling import Migrator, ReschedulingPolicy
from enginehouse_kit.scalers import Scaler
from enginehouse_kit.usage_stores import UsageStore

KINDS = (
    Kind(
        "protocol",
        "register_protocols",
        Protocol,
        "clients' protocols. The gateway serves the paths of all of them.",
        stays=True,
    ),
    Kind(
        "interceptor",
        "register_interceptors",
        Interceptor,
        "interceptors, chosen by ``interceptors``, in that order.",
        stays=True,
        acts=True,
    ),
    Kind(
        "scaler",
        "register_scalers",
        Scaler,
        "scalers, chosen by ``scheduling.scaler``. They decide for models with ``replicas = { min, max }``.",
    ),
    Kind(
        "discoverer",
        "register_discoverers",
        Discoverer,
        "discoverers, chosen by ``discovery.*.type``.",
        stays=True,
        acts=True,
    ),
    Kind("guard", "register_guards", Guard, "guards, chosen by ``guards``, in that order.", stays=True, acts=True),
    Kind(
        "limit_store",
        "register_limit_stores",
        LimitStore,
        "limit stores, chosen by ``limits.store``.",
        stays=True,
        acts=True,
    ),
    Kind(
        "usage_store",
        "register_usage_stores",
        UsageStore,
        "usage stores, chosen by ``usage.store``.",
        stays=True,
        acts=True,
    ),
    Kind(
        "rescheduling_policy",
        "register_rescheduling_policies",
        ReschedulingPolicy,
        "rescheduling policies, chosen by ``rescheduling.policies``, in that order.",
        stays=True,
    ),
    Kind(
        "migrator",
        "register_migrators",
        Migrator,
        "migrators, chosen by ``rescheduling.migrators``. The first that can move a request does so.",
        stays=True,
    ),
)
