"""The line that launches a model's engine, made from its configuration."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import msgspec

from enginehouse.config.parameters import decode_parameters
from enginehouse.config.schema import Config, ModelSettings, PullSettings
from enginehouse.config.secret_variables import secret_variables, withheld_from
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.replica import Role
from enginehouse.engines.followed_caches import events_config
from enginehouse.engines.gpus import CUDA_VISIBLE_DEVICES
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.interfaces.launch_spec import EngineOptions, LaunchSpec
from enginehouse.interfaces.launchers import LaunchLine
from enginehouse.interfaces.places import Place

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


class LaunchRules(NamedTuple):
    """``secrets``: the environment variables that hold secrets. ``migrators``: those that may move requests.

    ``adaptive_pd``: any engine may read prompts for others. ``pull``: where downloaded models are. ``gateway``: its
    name, which names its state folder.
    """

    secrets: frozenset[str] = frozenset()
    migrators: tuple[str, ...] = ()
    adaptive_pd: bool = False
    pull: PullSettings = PullSettings()
    gateway: str = ""


NO_RULES = LaunchRules()


def launch_rules(config: Config) -> LaunchRules:
    """The rules of a configuration."""
    rescheduling, enabled = config.rescheduling, config.rescheduling.enabled
    return LaunchRules(
        secret_variables(config),
        migrators=tuple(rescheduling.migrators) if enabled else (),
        adaptive_pd=enabled and rescheduling.adaptive_pd,
        pull=config.pull,
        gateway=config.server.name,
    )


class ModelLaunch:
    """The launch of an engine of the model ``name``. What does not depend on its port is found once.

    ``backend``: its name; by default that of the model. ``cache_folder``: of an engine on this machine.

    Its methods raise ``ConfigError``, naming the key, for options that the driver does not take, an unknown
    placeholder, an unset variable, a command that cannot be split, and a missing ``command`` if the driver has no
    launch line.
    """

    def __init__(
        self,
        name: str,
        model: ModelSettings,
        driver: SupportsLaunch,
        rules: LaunchRules = NO_RULES,
        environ: Mapping[str, str] = os.environ,
        backend: str = "",
        cache_folder: str = "",
    ) -> None:
        self._name = name
        self._cache_folder = cache_folder
        self._backend = backend or name
        self._model = model
        self._driver = driver
        self._rules = rules
        self._environ = environ

    def look_again(self) -> None:
        """Make lines by the files of now."""
        for found in ("_spec", "nowhere", "fingerprint"):
            self.__dict__.pop(found, None)

    def spec(self, place: Place, rank: int = 0) -> LaunchSpec:
        """The settings of the model for its driver, on the machine of ``place`` with this rank."""
        addresses = (place.bind, *place.others)
        return msgspec.structs.replace(
            self._spec,
            port=place.port,
            bind=addresses[rank],
            nodes=len(addresses),
            node_rank=rank,
            meet_at=place.meet_at,
            cache_folder=self._cache_folder if self._cache_folder and is_own_port(place) else "",
        )

    def line(self, place: Place, gpus: str = "") -> LaunchLine:
        """The launch line in ``place``. No shell is involved.

        ``gpus`` is its ``CUDA_VISIBLE_DEVICES``, unless the model's ``env`` sets another; empty for none. Its numbers
        are those of the driver: CUDA itself would count the fastest GPU first.
        """
        model, spec = self._model, self.spec(place)
        words, stop = _Words(spec, self._environ), model.stop_command
        return LaunchLine(
            command=self._command(spec, words),
            others=self._other_commands(place) if place.others else (),
            environment={
                **self._driver.environment(spec),
                **({CUDA_VISIBLE_DEVICES: gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {}),
                **{variable: words.fill(f"env.{variable}", value) for variable, value in model.env.items()},
            },
            withheld=self._withheld,
            port=place.port,
            bind=place.bind,
            place=None if is_own_port(place) else place,
            stop_command=_Words(spec, self._environ, pid="${pid}").split("stop_command", stop) if stop else (),
        )

    def _other_commands(self, place: Place) -> Sequence[Sequence[str]]:
        specs = [self.spec(place, rank) for rank in range(1, len(place.others) + 1)]
        return [self._command(spec, _Words(spec, self._environ)) for spec in specs]

    @cached_property
    def nowhere(self) -> LaunchLine:
        """The launch line on no port."""
        return self.line(Place(port=0))

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the launch line on no port."""
        return fingerprint(self.nowhere)

    @property
    def files(self) -> Sequence[str]:
        """The files that the driver says its engine will read; none for a configured ``command``."""
        return () if self._model.command else self._driver.files(self._spec)

    @cached_property
    def _spec(self) -> LaunchSpec:
        spec = launch_spec(self._name, self._model, self._driver, self._rules)
        events = events_config(self._rules.gateway, self._backend) if self._model.kv_events else ""
        return msgspec.structs.replace(spec, kv_events=events)

    @cached_property
    def _withheld(self) -> frozenset[str]:
        return withheld_from(self._model, self._rules.secrets, self._environ)

    def _command(self, spec: LaunchSpec, words: _Words) -> Sequence[str]:
        line = [
            *(words.split("command", self._model.command) or self._own_command(spec)),
            *(words.fill("args", word) for word in self._model.args),
        ]
        if spec.kv_events and spec.kv_events not in line:
            raise ConfigError(
                "its launch line does not have the engine publish events",
                key=f"models.{self._name}.kv_events",
                remedy="remove it, or give the engine --kv-events-config ${kv_events} in command or args",
            )
        return line

    def _own_command(self, spec: LaunchSpec) -> Sequence[str]:
        command = self._driver.command(spec)
        if command is None:
            problem = f"the driver '{self._model.engine_driver}' has no launch line of its own"
            remedy = "set path if the driver launches engines, else command"
            raise ConfigError(problem, key=f"models.{self._name}", remedy=remedy)
        return command


def launch_line(
    name: str,
    model: ModelSettings,
    driver: SupportsLaunch,
    port: int,
    environ: Mapping[str, str] = os.environ,
    rules: LaunchRules = NO_RULES,
) -> LaunchLine:
    """One launch line of the model ``name``, as ``ModelLaunch`` makes it."""
    return ModelLaunch(name, model, driver, rules, environ).line(Place(port=port))


def _path(model: ModelSettings, rules: LaunchRules) -> str:
    """The model's file or folder; of one that is not downloaded yet, the name of its source."""
    if not model.source:
        return os.path.expanduser(model.path)
    found = PulledModels(rules.pull).find(model.source)
    return model.source if found is None else str(found)


def launch_spec(name: str, model: ModelSettings, driver: SupportsLaunch, rules: LaunchRules = NO_RULES) -> LaunchSpec:
    """The settings of a model for its driver, on no port.

    Raises ``ConfigError`` for options that the driver does not take.
    """
    options = decode_parameters(
        driver.Options,
        model.options,
        table=f"models.{name}.options",
        owner=f"driver '{model.engine_driver}'",
        word="option",
    )
    return LaunchSpec(
        model=name,
        path=_path(model, rules),
        port=0,
        context_length=model.context_length,
        sleep=model.sleeps,
        options=options or EngineOptions(),
        args=model.args,
        migrators=rules.migrators,
        hands_over=rules.adaptive_pd or model.role is not Role.NEUTRAL,
        role=model.role,
    )


def is_own_port(place: Place) -> bool:
    """Whether ``place`` is no more than a port of this machine, which the gateway chose."""
    return place == Place(port=place.port)


def fingerprint(line: LaunchLine) -> str:
    """A hash that two launch lines share if their commands and environments are the same. It reveals no secret."""
    launched = msgspec.json.encode([line.command, line.environment], order="sorted")
    return hashlib.sha256(launched).hexdigest()


class _Words:
    """Splits the texts of one model's configuration into words and replaces placeholders by what ``spec`` says."""

    def __init__(self, spec: LaunchSpec, environ: Mapping[str, str], **more: str) -> None:
        self._table = f"models.{spec.model}"
        self._environ = environ
        self._values = {
            "port": str(spec.port),
            "bind": spec.bind,
            "path": spec.path,
            "model": spec.model,
            "nodes": str(spec.nodes),
            "node_rank": str(spec.node_rank),
            "meet_at": spec.meet_at,
            "kv_events": spec.kv_events,
            "cache_folder": spec.cache_folder,
            **more,
        }

    def split(self, key: str, text: str) -> Sequence[str]:
        """Split ``text`` as a shell would, then replace placeholders; so a value is never split."""
        try:
            return [self.fill(key, word) if "${" in word else word for word in shlex.split(text)]
        except ValueError as error:
            raise ConfigError(f"cannot be split into words: {error}", key=f"{self._table}.{key}") from None

    def fill(self, key: str, text: str) -> str:
        """Replace the placeholders of ``text``."""
        return _PLACEHOLDER.sub(partial(self._value, f"{self._table}.{key}"), text)

    def _value(self, key: str, match: re.Match[str]) -> str:
        placeholder = match[1]
        if placeholder in self._values:
            return self._values[placeholder]
        if not placeholder.startswith("env:"):
            known = " ".join(f"${{{name}}}" for name in [*self._values, "env:VARIABLE"])
            raise ConfigError(f"unknown placeholder ${{{placeholder}}}", key=key, remedy=f"known are {known}")
        variable = placeholder.removeprefix("env:")
        if variable not in self._environ:
            raise ConfigError(f"the environment variable {variable} is not set", key=key, remedy="set it or remove it")
        return self._environ[variable]
