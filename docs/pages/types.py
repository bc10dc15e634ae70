"""Writes ``docs/reference/types.md``: the types and functions that plugin authors import, read from the source."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent, indent

from enginehouse._door import public_names
from enginehouse.plugin_manager.kinds import KINDS

_HEAD = """\
# Types

The types and functions that a plugin may use. Import those of the first part from `enginehouse`. The second part is the
test kit: import from `enginehouse.testing`, the real processes from `enginehouse.testing.gateway` and
`enginehouse.testing.engines`, the types of fixtures from `enginehouse.testing.pytest_plugin`. [Hooks](hooks.md) has the
interfaces that a plugin implements.
"""

_BESIDE_THE_KIT = {
    "Installed plugins": {"enginehouse_kit.installed.listing": ["Row"]},
    "Real processes": {
        "enginehouse.testing.gateway": ["RunningGateway", "Status"],
        "enginehouse.testing.engines": ["SimEngine", "SeenRequest"],
    },
    "Fixtures of pytest": {
        "enginehouse.testing.pytest_plugin": [
            "enginehouse_gateway",
            "enginehouse_engine",
            "enginehouse_plugins",
            "enginehouse_check",
            "StartGateway",
            "StartEngine",
            "CheckType",
        ],
    },
}
"""Types that belong to the kit, although ``enginehouse.testing`` itself does not export them, by section and module."""


def types_page() -> str:
    """The whole page."""
    testing = _sections("enginehouse.testing")
    for title, modules in _BESIDE_THE_KIT.items():
        section = testing.setdefault(title, {})
        section.update({module: [*section.get(module, ()), *names] for module, names in modules.items()})
    return "\n".join([_HEAD, *_part("enginehouse", _sections("enginehouse")), *_part("enginehouse.testing", testing)])


def _sections(package: str) -> dict[str, dict[str, list[str]]]:
    """The names that ``package`` offers, except the interfaces of hooks, by section and module."""
    importlib.import_module(package)
    interfaces = {kind.interface.__name__ for kind in KINDS if kind.interface}
    sections: dict[str, dict[str, list[str]]] = {}
    for name, place in public_names(package).items():
        if name not in interfaces:
            sections.setdefault(place.section, {}).setdefault(place.module, []).append(name)
    return sections


def _part(package: str, sections: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
    yield f"## `{package}`\n"
    for title, modules in sections.items():
        yield f"### {title}\n"
        for module, names in modules.items():
            yield from _entries(module, names)


def _entries(module: str, names: list[str]) -> Iterator[str]:
    """One text for each of ``names``, in the order of the source."""
    source = _source(module).splitlines()
    body = _tree(module).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if _name(node) in names:
            documentation = _text(node, following)
            yield f"#### {_name(node)}\n\n" + (f"{documentation}\n\n" if documentation else "") + _code(node, source)


def _source(module: str) -> str:
    """The source of a module. It may be compiled, and then its own ``__file__`` may be in another folder."""
    package, _, name = module.rpartition(".")
    folders: list[str] | None = getattr(importlib.import_module(module), "__path__", None)
    if folders is not None:
        return Path(folders[0], "__init__.py").read_text()
    return Path(importlib.import_module(package).__path__[0], f"{name}.py").read_text()


def _tree(module: str) -> ast.Module:
    return ast.parse(_source(module))


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _text(node: ast.stmt, following: ast.stmt | None) -> str:
    """The docstring of a class or a function, else the string that follows a constant; as Markdown."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node) or ""
    else:
        text = _string(following)
    return text.replace("``", "`").replace("\n\n::\n", "\n")


def _string(node: ast.stmt | None) -> str:
    value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
    return inspect.cleandoc(value) if isinstance(value, str) else ""


def _code(node: ast.stmt, source: list[str]) -> str:
    text = _class(node, source) if isinstance(node, ast.ClassDef) else _head(node, source)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        text += " ..."
    return f"```python\n{text}\n```\n"


def _class(node: ast.ClassDef, source: list[str]) -> str:
    """The class with its public fields and methods, and with their docstrings."""
    fields, methods = [], []
    for member, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(member):
            methods.append(indent(_method(member, source), "    "))
        elif isinstance(member, ast.Assign | ast.AnnAssign) and _is_public(member):
            documentation = _string(following)
            lines = [_head(member, source), *([_docstring(documentation)] if documentation else [])]
            fields.append(indent("\n".join(lines), "    "))
    body = "\n\n".join([*(["\n".join(fields)] if fields else []), *methods])
    return _head(node, source) + (f"\n{body}" if body else " ...")


def _is_public(member: ast.stmt) -> bool:
    return not _name(member).startswith("_") or _name(member) in ("__init__", "__call__")


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> str:
    documentation = ast.get_docstring(node)
    return _head(node, source) + (f"\n{indent(_docstring(documentation), '    ')}" if documentation else " ...")


def _head(node: ast.stmt, source: list[str]) -> str:
    """The lines of a constant or a field; of a class or a function, the lines above its body."""
    first, last = node.lineno, node.end_lineno
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
        last = max(node.lineno, node.body[0].lineno - 1)
    return dedent("\n".join(source[first - 1 : last])).rstrip()


def _docstring(text: str) -> str:
    return f'"""{text}' + ('\n"""' if "\n" in text else '"""')
