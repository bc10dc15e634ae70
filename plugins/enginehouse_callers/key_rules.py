"""The rules of ``[[auth.keys]]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from enginehouse import ConfigError
from enginehouse.callers import NAMESPACES, KeySettings, moment
from enginehouse.errors import ConfigErrors


def check_keys(keys: Sequence[KeySettings], authenticators: Sequence[str]) -> None:
    """Raise ``ConfigErrors``, or the only ``ConfigError``.

    The types of ``authenticators`` begin the names of their callers.
    """
    errors = [
        *_same(keys, "name", lambda key: key.name, "give each key its own name"),
        *_same(keys, "key", lambda key: key.key, "give each client its own secret"),
        *(error for number, key in enumerate(keys) for error in _of_key(key, f"auth.keys[{number}]", authenticators)),
    ]
    if len(errors) > 1:
        raise ConfigErrors(errors)
    if errors:
        raise errors.pop()  # not errors[0]: an error refers to this frame, and the list would refer to the error


def _of_key(key: KeySettings, path: str, authenticators: Sequence[str]) -> Iterator[ConfigError]:
    if key.name.startswith(NAMESPACES):
        remedy = f"choose a name that begins with none of {', '.join(NAMESPACES)}"
        yield ConfigError("is a name that the gateway gives to callers", key=f"{path}.name", remedy=remedy)
    for type in authenticators:
        if key.name.startswith(f"{type}/") and f"{type}/" not in NAMESPACES:
            problem = f"'{key.name}' begins as names of callers whom the authenticator '{type}' knows"
            remedy = f"choose a name that does not begin with '{type}/'"
            yield ConfigError(problem, key=f"{path}.name", remedy=remedy)
    if not key.key:
        yield ConfigError("is empty", key=f"{path}.key", remedy="put a secret there")
    if key.expires and not _is_moment(key.expires):
        remedy = "write 2030-01-31 or 2030-01-31T18:00:00Z"
        yield ConfigError("is not a date or time in ISO 8601", key=f"{path}.expires", remedy=remedy)


def _same(
    keys: Sequence[KeySettings], field: str, value: Callable[[KeySettings], str], remedy: str
) -> Iterator[ConfigError]:
    first: dict[str, int] = {}
    for number, key in enumerate(keys):
        earlier = first.setdefault(value(key), number)
        if earlier != number:
            problem = f"is the same as auth.keys[{earlier}].{field}"
            yield ConfigError(problem, key=f"auth.keys[{number}].{field}", remedy=remedy)


def _is_moment(text: str) -> bool:
    try:
        moment(text)
    except ValueError:
        return False
    return True
