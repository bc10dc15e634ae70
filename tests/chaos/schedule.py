"""What happens in one run, drawn from its seed before it begins."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.chaos import configs
from tests.chaos.asks import make_ask
from tests.chaos.clients import Manner, Plan, make_manner
from tests.chaos.configs import Table
from tests.chaos.network import CONNECT_FAULTS
from tests.chaos.sockets import SocketPlan, make_plans

_PAGES = (
    "/health",
    "/ready",
    "/metrics",
    "/v1/models",
    "/running",
    "/api/status",
    "/api/requests",
    "/api/decisions",
    "/api/events",
    "/logs",
    "/logs/stream",
)


_HEALTHS = ("ok", "busy", "slow", "broken", "flood", "flood")
_KINDS = (
    "health",
    "health",
    "meddle",
    "connect",
    "descriptors",
    "crash",
    "crash",
    "drain",
    "load",
    "page",
    "delete",
    "reload",
)


class Action(NamedTuple):
    """Something that happens at a time, and what or whom it concerns."""

    at: float
    what: str
    whom: str = ""
    how: str = ""


class Schedule(NamedTuple):
    """``calm``: no faults at all, so everything must be served. ``shutdown``: when the gateway is stopped, if early.

    ``killed``: when the gateway is killed, if it is; another one follows. ``fault_rate`` is that of engines' answers,
    ``plugin_faults`` that of calls of the bench's plugins.
    """

    seed: int | str
    calm: bool
    config: Table
    fault_rate: float
    plugin_faults: float
    plans: tuple[Plan, ...]
    sockets: tuple[SocketPlan, ...]
    actions: tuple[Action, ...]
    shutdown: float | None
    killed: float | None = None

    def lines(self) -> list[str]:
        """The schedule, for people."""
        rates = f"faults {self.fault_rate}, of plugins {self.plugin_faults}"
        lines = [f"seed {self.seed}{', calm' * self.calm}, {rates}, config {self.config}"]
        if self.shutdown is not None:
            lines.append(f"{self.shutdown:9.4f} shutdown")
        if self.killed is not None:
            lines.append(f"{self.killed:9.4f} kill")
        lines += [f"{action.at:9.4f} {action.what} {action.whom} {action.how}".rstrip() for action in self.actions]
        for plan in self.plans:
            lines.append(f"{plan.at:9.4f} client {plan.manner}")
            lines += [f"          {ask.name}: {ask.wire()[:400]!r}" for ask in plan.asks]
        lines += [f"{plan.at:9.4f} {plan}" for plan in self.sockets]
        return lines


def make_schedule(seed: int | str, config: Table | None = None) -> Schedule:
    """The schedule of ``seed``; with a ``config``, that of the gateway that follows a killed one."""
    rng = random.Random(f"{seed}/schedule")
    calm = config is None and rng.random() < 0.08
    first = config is None
    config = configs.make_config(rng) if config is None else config
    length = rng.choice((1.0, 3.0, 6.0))
    if calm:
        config["scheduling"] |= {"max_queue": 1000, "queue_timeout": "60s"}
        config["server"]["max_body_memory"] = "1GiB"
        config["auth"] = {}
    shutdown = None if calm or rng.random() > 0.12 else rng.uniform(0.2, length)
    return Schedule(
        seed=seed,
        calm=calm,
        config=config,
        fault_rate=0.0 if calm else rng.choice((0.2, 0.4, 0.7)),
        plugin_faults=0.0 if calm else rng.choice((0.0, 0.0, 0.0, 0.1)),
        plans=_plans(rng, config, length, calm),
        sockets=tuple(
            make_plans(random.Random(f"{seed}/sockets"), configs.models_of(config), configs.client_keys(config), length)
        ),
        actions=() if calm else tuple(sorted(_actions(rng, config, length))),
        shutdown=shutdown,
        killed=rng.uniform(0.3, length) if first and not calm and shutdown is None and rng.random() < 0.12 else None,
    )


def _plans(rng: random.Random, config: Table, length: float, calm: bool) -> tuple[Plan, ...]:
    models, keys = configs.models_of(config), configs.client_keys(config)
    models += list(config["routing"].get("aliases", ()))
    plans, number = [], 0
    for _ in range(rng.randint(2, 7)):
        asks = []
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            number += 1
            asks.append(make_ask(rng, number, models, keys))
        if calm:
            asks = [ask for ask in asks if ask.served]
        manner = Manner() if calm else make_manner(rng, len(asks))
        if manner.pipelines:
            for ask in asks[:-1]:
                ask.closes, ask.version = False, "1.1"
        plans.append(Plan(rng.uniform(0.1, length), tuple(asks), manner))
    return tuple(plans)


def _actions(rng: random.Random, config: Table, length: float) -> list[Action]:
    backends, models = list(config["backends"]), list(config["models"])
    everyone = [*backends, *models]
    actions = []
    for _ in range(rng.choice((0, 2, 6))):
        at = rng.uniform(0, length)
        what = rng.choice(_KINDS)
        if what == "health":
            actions.append(Action(at, what, rng.choice(everyone), rng.choice(_HEALTHS)))
        elif what == "meddle":
            if configs.ROUTER in backends:
                actions.append(Action(at, what, rng.choice(configs.ROUTER_MODELS), rng.choice(("load", "unload"))))
        elif what == "connect":
            how = rng.choice(("hang", *CONNECT_FAULTS))
            whom = rng.choice(everyone)
            actions += Action(at, what, whom, how), Action(at + rng.uniform(0, 2), what, whom, "")
        elif what == "descriptors":
            actions.append(Action(at, what, "", str(rng.choice((0.1, 1.0, 3.0)))))
        elif what == "crash":
            whom = rng.choice(everyone)
            actions += Action(at, what, whom, "down"), Action(at + rng.uniform(0, 2), what, whom, "up")
        elif what == "drain":
            whom = rng.choice(everyone)
            actions += Action(at, what, whom), Action(at + rng.uniform(0, 3), "undrain", whom)
        elif what == "load":
            if models:
                actions.append(Action(at, rng.choice(("load", "unload", "unload all")), rng.choice(models)))
        elif what == "page":
            actions.append(Action(at, what, rng.choice(_PAGES)))
        elif what == "delete":
            actions.append(Action(at, what))
        else:
            actions.append(Action(at, what, how=rng.choice(("signal", "post", "dry"))))
    return actions
