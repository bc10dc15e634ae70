"""The conformance checks of extra HTTP pages and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from enginehouse_kit.expect import expect


def check_routes(factory: Callable[[], Any]) -> None:
    """Check that the factory returns a list of Starlette routes with paths that begin with ``/``, each once."""
    from starlette.routing import BaseRoute, Route  # only plugins with pages need Starlette

    routes = factory()
    expect(isinstance(routes, list | tuple), f"the factory must return a list of Starlette routes, got {routes!r}")
    seen: Counter[tuple[str, str]] = Counter()
    for route in routes:
        expect(isinstance(route, BaseRoute), f"the factory must return a list of Starlette routes, it has {route!r}")
        path = getattr(route, "path", "/")
        expect(path.startswith("/") or not path, f"the path of a route must begin with '/', got {path!r}")
        methods = (route.methods or ()) if isinstance(route, Route) else ()
        seen.update((path, method) for method in methods)
    twice = sorted(f"{method} {path}" for (path, method), count in seen.items() if count > 1)
    expect(not twice, f"each path must have one route for each method, got several for {', '.join(twice)}")


def check_command(factory: Callable[[], Any]) -> None:
    """Check that the factory returns a click command with a help text, and that ``--help`` works."""
    import click
    from click.testing import CliRunner  # imports much that a gateway does not need

    command = factory()
    expect(isinstance(command, click.Command), f"the factory must return a click command, got {command!r}")
    expect(bool(command.help), "the command must have a help text: give its function a docstring")
    result = CliRunner().invoke(command, ["--help"])
    expect(result.exit_code == 0, f"--help must exit with status 0, got {result.exit_code}: {result.exception!r}")
