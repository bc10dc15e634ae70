"""The errors of a configuration, collected so that they are raised together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from enginehouse.domain.errors import ConfigError, ConfigErrors, PluginError

T = TypeVar("T")


class Findings:
    """What is wrong with a configuration: ``found``, and the errors of all that is made for it since."""

    def __init__(self, found: Iterable[ConfigError] = ()) -> None:
        self._found: dict[str, ConfigError | PluginError] = {str(error): error for error in found}

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the ``ConfigError`` or ``PluginError`` of the block. Equal ones count once."""
        try:
            yield
        except (ConfigError, PluginError) as error:
            for each in error.errors if isinstance(error, ConfigErrors) else [error]:
                self._found.setdefault(str(each), each.with_traceback(None))

    def collect(self, make: Callable[[], T]) -> T | None:
        """What ``make`` returns; ``None`` if it raises an error, which is kept."""
        with self.collecting():
            return make()
        return None

    def check(self) -> None:
        """Raise what was found: ``ConfigErrors``, or the only ``ConfigError`` or ``PluginError``."""
        found, self._found = [*self._found.values()], {}  # an error refers to frames, and these to this object
        if len(found) > 1:
            raise ConfigErrors([each if isinstance(each, ConfigError) else ConfigError(str(each)) for each in found])
        if found:
            raise found.pop()
