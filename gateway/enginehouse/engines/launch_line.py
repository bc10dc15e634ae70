"""The line that launches a model's engine, made from its configuration."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from enginehouse.config.managed import driver_of
from enginehouse.config.parameters import decode_parameters
from enginehouse.config.schema import ModelSettings
from enginehouse.config.secret_variables import withheld_from
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.replica import Role
from enginehouse.engines.gpus.assignment import CUDA_VISIBLE_DEVICES
from enginehouse.engines.launch_rules import NO_RULES, LaunchRules
from enginehouse.engines.missing_program import missing_program
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.interfaces.launch_spec import EngineOptions, LaunchSpec
from enginehouse.interfaces.launchers import LaunchLine

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def launch_line(
    name: str,
    model: ModelSettings,
    driver: SupportsLaunch,
    port: int,
    environ: Mapping[str, str] = os.environ,
    rules: LaunchRules = NO_RULES,
    gpus: str = "",
) -> LaunchLine:
    """Make the launch line for the engine of the model ``name`` on ``port``. No shell is involved.

    ``gpus`` is its ``CUDA_VISIBLE_DEVICES``, unless the model's ``env`` sets another; empty for none. Raises
    ``ConfigError``, naming the key, for an unknown placeholder, an unset variable, a command that cannot be split, and
    a missing ``command`` if the driver has no launch line.
    """
    spec = launch_spec(name, model, driver, port, rules)
    values = {"port": str(port), "path": spec.path, "model": name}
    words = _Words(f"models.{name}", values, environ)
    stop_words = _Words(f"models.{name}", {**values, "pid": "${pid}"}, environ)
    return LaunchLine(
        command=[
            *(words.split("command", model.command) or _own_command(f"models.{name}", model, driver, spec)),
            *(words.fill("args", word) for word in model.args),
        ],
        environment={
            **driver.environment(spec),
            **({CUDA_VISIBLE_DEVICES: gpus} if gpus else {}),
            **{variable: words.fill(f"env.{variable}", value) for variable, value in model.env.items()},
        },
        withheld=withheld_from(model, rules.secrets, environ),
        port=port,
        stop_command=stop_words.split("stop_command", model.stop_command),
    )


def launch_spec(
    name: str, model: ModelSettings, driver: SupportsLaunch, port: int = 0, rules: LaunchRules = NO_RULES
) -> LaunchSpec:
    """The settings of a model for its driver. Raises ``ConfigError`` for options that the driver does not take."""
    options = decode_parameters(
        driver.Options,
        model.options,
        table=f"models.{name}.options",
        owner=f"driver '{driver_of(model)}'",
        word="option",
    )
    return LaunchSpec(
        model=name,
        path=os.path.expanduser(model.path),
        port=port,
        context_length=model.context_length,
        sleep=model.sleeps,
        options=options or EngineOptions(),
        args=model.args,
        migrators=rules.migrators,
        hands_over=rules.adaptive_pd or model.role is not Role.NEUTRAL,
        role=model.role,
    )


def why_not(name: str, model: ModelSettings, driver: SupportsLaunch, line: LaunchLine) -> Iterator[str]:
    """The reasons why the engine of ``line`` cannot start on this machine, with remedies; none if it may."""
    if missing := missing_program(line.command, line.environment_on(os.environ)):
        remedy = f" ({driver.how_to_install})" if driver.how_to_install else ""
        yield f"models.{name}: {missing}{remedy}"
    problem = "" if model.command else driver.why_not(launch_spec(name, model, driver))
    if problem:
        yield f"models.{name}.path: {problem}"


def fingerprint(line: LaunchLine) -> str:
    """A hash that two launch lines share if their commands and environments are the same. It reveals no secret."""
    launched = msgspec.json.encode([line.command, line.environment], order="sorted")
    return hashlib.sha256(launched).hexdigest()


def _own_command(key: str, model: ModelSettings, driver: SupportsLaunch, spec: LaunchSpec) -> Sequence[str]:
    command = driver.command(spec)
    if command is None:
        problem = f"the driver '{driver_of(model)}' has no launch line of its own"
        raise ConfigError(problem, key=key, remedy="set path if the driver launches engines, else command")
    return command


class _Words:
    """Splits the texts of one model's configuration into words and replaces placeholders."""

    def __init__(self, table: str, values: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._table = table
        self._values = values
        self._environ = environ

    def split(self, key: str, text: str) -> Sequence[str]:
        """Split ``text`` as a shell would, then replace placeholders; so a value is never split."""
        try:
            return [self.fill(key, word) for word in shlex.split(text)]
        except ValueError as error:
            raise ConfigError(f"cannot be split into words: {error}", key=f"{self._table}.{key}") from None

    def fill(self, key: str, text: str) -> str:
        """Replace the placeholders of ``text``."""
        return _PLACEHOLDER.sub(lambda match: self._value(f"{self._table}.{key}", match[1]), text)

    def _value(self, key: str, placeholder: str) -> str:
        if placeholder in self._values:
            return self._values[placeholder]
        if not placeholder.startswith("env:"):
            known = " ".join(f"${{{name}}}" for name in [*self._values, "env:VARIABLE"])
            raise ConfigError(f"unknown placeholder ${{{placeholder}}}", key=key, remedy=f"known are {known}")
        variable = placeholder.removeprefix("env:")
        if variable not in self._environ:
            raise ConfigError(f"the environment variable {variable} is not set", key=key, remedy="set it or remove it")
        return self._environ[variable]
