"""Configurations of the bench, drawn from a seed, and changes of them."""

from __future__ import annotations

import copy
import random
from typing import Any

Table = dict[str, Any]
REMOTE_MODELS = ["r", "s"]
MANAGED_MODELS = ["a", "b", "c"]
ROUTER, ROUTER_MODELS = "e3", ["x", "y"]
"""The server that loads models itself."""
STRATEGIES = ("smart", "round_robin", "random", "priority_only", "cache_aware", "least_pending")
"""The last two have requests wait for their model, not for one replica."""
ADMIN_KEY = "SECRET-key-admin"
CLIENT_KEYS = ["SECRET-key-alice", "SECRET-key-bob"]


def make_config(rng: random.Random) -> Table:
    """A configuration whose time limits are a few seconds."""
    config: Table = {
        "server": {
            "host": "127.0.0.1",
            "port": 8080,
            "drain_timeout": rng.choice(("1s", "4s")),
            "max_body": "512KiB",
            "max_body_memory": rng.choice(("1GiB", "512KiB")),
            "max_engine_memory": rng.choice(("1GiB", "1GiB", "256KiB")),
        },
        "checks": {
            "interval": rng.choice(("1s", "3s")),
            "timeout": "800ms",
            "failures": rng.choice((1, 2, 3)),
            "successes": rng.choice((1, 2)),
        },
        "timeouts": {
            "connect": "1s",
            "first_byte": "2s",
            "stall": "1500ms",
            "total": rng.choice(("0s", "9s")),
            "client": rng.choice(("0s", "3s")),
        },
        "routing": {
            "strategy": rng.choice(STRATEGIES),
            "max_retries": rng.choice((0, 1, 2, 2, 3)),
            "broken_stream": rng.choice(("error", "restart", "continue")),
            "hedge_after": rng.choice(("off", "off", "10ms", "200ms", "p50")),
            "retry_budget": rng.choice((0.0, 0.1, 1.0)),
        },
        "telemetry": {"log_level": "debug"},
        "hosts": {"local": {"launcher": "virtual", "max_loads": rng.choice((1, 2)), "memory": "4GiB"}},
        "backends": {},
        "models": {},
        "scheduling": {
            "queue_timeout": rng.choice(("3s", "8s")),
            "max_queue": rng.choice((1, 3, 1000)),
            "max_wait": rng.choice(("1s", "5s")),
            "min_residency": rng.choice(("0s", "0s", "500ms")),
            "swapper": rng.choice(("group", "group", "memory", "matrix")),
            "progress": rng.choice(("off", "off", "comments", "reasoning")),
            "progress_patience": rng.choice(("100ms", "1s")),
            "priorities": {"r": 3},
        },
    }
    if rng.random() < 0.4:
        config["auth"] = {"keys": _keys(rng)}
    for number in range(rng.randint(1, 3)):
        config["backends"][f"e{number}"] = _backend(rng, number)
    if rng.random() < 0.3:
        config["hosts"][ROUTER] = {}
        config["backends"][ROUTER] = _router()
    for name in MANAGED_MODELS[: rng.randint(0, 3)]:
        config["models"][name] = _model(rng)
        if name == "a":  # two that stop each other are refused
            config["models"][name]["preload"] = config["models"][name]["replicas"] == 1 and rng.random() < 0.3
    if config["scheduling"]["swapper"] == "matrix":
        _give_sets(rng, config)
    if rng.random() < 0.3:
        config["routing"]["fallbacks"] = {"r": ["s", *list(config["models"])[:1]]}
    if rng.random() < 0.3:
        config["routing"]["aliases"] = {"other": "r"}
    if rng.random() < 0.4:
        config["routing"]["rules"] = _rules(rng)
    return config


def models_of(config: Table) -> list[str]:
    """The models that can be asked for."""
    served = {model: None for backend in config["backends"].values() for model in backend["models"]}
    return [*served, *config["models"]]


def client_keys(config: Table) -> list[str]:
    """The keys with which a client can ask for models."""
    return CLIENT_KEYS if "auth" in config else []


def change(rng: random.Random, before: Table) -> Table:
    """The configuration of the next reload."""
    config = copy.deepcopy(before)
    for _ in range(rng.randint(1, 2)):
        _change_one(rng, config)
    return config


def _change_one(rng: random.Random, config: Table) -> None:
    backends, models = config["backends"], config["models"]
    what = rng.randrange(10)
    if what == 0:
        number = rng.randrange(3)
        backends[f"e{number}"] = _backend(rng, number)
    elif what == 1 and len(backends) > 1:
        del backends[rng.choice(list(backends))]
    elif what == 2:
        models.setdefault(rng.choice(MANAGED_MODELS), _model(rng))
    elif what == 3 and models:
        del models[rng.choice(list(models))]
        config["routing"].pop("fallbacks", None)
    elif what == 4 and models:
        models[rng.choice(list(models))]["args"] = ["--relaunched", str(rng.randrange(1000))]
    elif what == 5:
        config["routing"]["max_retries"] = rng.randrange(4)
    elif what == 6:
        config["scheduling"]["max_queue"] = rng.choice((1, 1000))
        config["scheduling"]["swapper"] = rng.choice(("group", "memory"))
        config["scheduling"].pop("matrix", None)
    elif what == 7:
        config["checks"]["interval"] = rng.choice(("1s", "3s"))
    elif what == 8:
        config["routing"]["strategy"] = rng.choice(STRATEGIES)
    elif config["routing"].pop("rules", None) is None:
        config["routing"]["rules"] = _rules(rng)


def _rules(rng: random.Random) -> list[Table]:
    """A strategy for all requests, or for a share of them, that only the rule names."""
    weight = rng.choice((1.0, 0.5))
    return [{"header": "content-type: application/json", "strategy": rng.choice(STRATEGIES), "weight": weight}]


def _give_sets(rng: random.Random, config: Table) -> None:
    """Let the models run each for itself, and some together."""
    models = list(config["models"])
    if not models:
        config["scheduling"]["swapper"] = "group"
        return
    sets = {name: name for name in models}
    if len(models) > 1:
        sets["pair"] = " & ".join(rng.sample(models, 2))
    config["scheduling"]["matrix"] = {"vars": {name: name for name in models}, "sets": sets}


def _keys(rng: random.Random) -> list[Table]:
    most = rng.choice((0, 0, 2))
    return [
        {"name": "admin", "key": ADMIN_KEY, "admin": True},
        *({"name": key[-5:], "key": key, "max_concurrent": most} for key in CLIENT_KEYS),
    ]


def _backend(rng: random.Random, number: int) -> Table:
    models = REMOTE_MODELS if number == 0 or rng.random() < 0.7 else [rng.choice(REMOTE_MODELS)]
    return {
        "url": f"http://e{number}:8000{rng.choice(('', '', '/prefix'))}",
        "driver": rng.choice(("fluent", "fluent", "moody")),
        "models": list(models),
        "api_key": f"SECRET-backend-e{number}",
        "priority": rng.choice((0, 10)),
        "concurrency": rng.choice((0, 0, 1, 2)),
    }


def _router() -> Table:
    return {
        "url": f"http://{ROUTER}:8000",
        "driver": "llamacpp_router",
        "host": ROUTER,
        "models": list(ROUTER_MODELS),
        "api_key": f"SECRET-backend-{ROUTER}",
    }


def _model(rng: random.Random) -> Table:
    return {
        "driver": rng.choice(("fluent", "vllm", "llamacpp", "moody")),
        "idle": rng.choice(("stop", "sleep")),
        "command": "engine --port ${port}",
        "replicas": rng.choice((1, 1, 2)),
        "concurrency": rng.choice((0, 1, 2)),
        "start_timeout": "2s",
        "stop_timeout": "1s",
        "ttl": rng.choice(("0s", "0s", "3s")),
        "memory": rng.choice(("1GiB", "3GiB")),
    }
