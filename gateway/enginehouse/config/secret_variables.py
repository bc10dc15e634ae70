"""The environment variables that hold secrets of the configuration. Engines do not inherit them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from enginehouse.config.environment import PREFIX
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.config.secrets import Secret

_PLACEHOLDER = re.compile(r"\$\{env:([^}]*)\}")
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_PLACES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|TZ|TERM|TMP|TEMP|HOSTNAME|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR"
    r"|.*_(PATH|HOME|DIR|CACHE|VISIBLE_DEVICES)|(LC|XDG|CUDA|NVIDIA|HIP|ROCR|OMP)_.*"
)
"""Variables that launch lines use in ``${env:NAME}``, but that are no secrets: every engine may need them."""
_SECRETS = re.compile(
    r"(AWS|AZURE|GOOGLE|GCP|OTEL|GITHUB|GH|GITLAB|CI|VAULT|DOCKER|SSH)_.*"
    r"|(.*_)?(API)?(KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|DSN|PAT|HEADERS)(_.*)?",
    re.IGNORECASE,
)
"""Variables that hold secrets by their names, or lead to them: no engine needs them unless its table says so."""
_LOGIN = re.compile(r"://[^/@\s]+:[^/@\s]+@")
"""A password in a URL."""


def secret_variables(config: Config) -> frozenset[str]:
    """The variables that ``config`` names: as ``env:NAME``, or as ``${env:NAME}`` unless they say where things are."""
    names = set()
    for text in _texts(config):
        reference = text.reference if isinstance(text, Secret) else text
        if match := _REFERENCE.fullmatch(reference):
            names.add(match[1])
        names.update(name for name in _PLACEHOLDER.findall(text) if not _PLACES.fullmatch(name))
    return frozenset(names)


def secret_values(config: Config) -> frozenset[str]:
    """The secrets themselves, which no log may show."""
    return frozenset(str(text) for text in _texts(config) if text and isinstance(text, Secret))


def withheld_from(model: ModelSettings, secrets: frozenset[str], environ: Mapping[str, str]) -> frozenset[str]:
    """The variables of ``environ`` that the engine of ``model`` must not get.

    These are the ``secrets``, all variables that configure the gateway, and those of others that hold secrets by their
    names or have a URL with a password, unless a ``${env:NAME}`` of the model names them.
    """
    named = {name for text in _texts(model) for name in _PLACEHOLDER.findall(text)}
    return frozenset(name for name, value in environ.items() if name in secrets or _is_withheld(name, value)) - named


@lru_cache(maxsize=1024)  # asked of the same environment for each model
def _is_withheld(name: str, value: str) -> bool:
    if name.startswith(PREFIX) or _SECRETS.fullmatch(name):
        return True
    return _LOGIN.search(value) is not None and not name.lower().endswith("_proxy")


def _texts(value: object) -> Iterator[str]:
    """Every string in ``value``, in any order. It takes no recursion: each reload reads a whole configuration."""
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, msgspec.Struct):
            rest += msgspec.structs.astuple(value)
        elif isinstance(value, dict):
            rest += value.values()
        elif isinstance(value, list):
            rest += value
