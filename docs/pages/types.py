"""Writes ``docs/reference/types.md``: the types and functions that plugin authors import, read from the source."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import iter_modules
from textwrap import dedent, indent

from enginehouse.plugin_manager.kinds import KINDS

_RE_EXPORTS = ("enginehouse.", "enginehouse_kit.testing")
"""The modules that offer what they import as itself."""
_SPECIAL = ("__init__", "__call__", "__iter__", "__len__", "__getitem__", "__contains__")
"""The special methods that show what can be done with an object."""
_FOR_TOOLS = re.compile(r"  # (noqa|type: ignore).*")
_HEAD = """\
# Types

The types and functions that a plugin may use, by the module to import them from: `enginehouse`, the modules beside it,
and `enginehouse_kit`, the kit for authors. Other modules may change without notice. [Hooks](hooks.md) has the
interfaces that a plugin implements.
"""


def types_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(text for module, names in public_names().items() for text in _section(module, names))])


def public_names() -> dict[str, list[str]]:
    """The names of each public module; packages of ``enginehouse`` are internal."""
    modules = [module for package in ("enginehouse", "enginehouse_kit") for module in _modules(package)]
    return {module: names for module in modules if (names := _offered(module)) is not None}


def _modules(package: str) -> Iterator[str]:
    yield package
    for found in sorted(iter_modules(importlib.import_module(package).__path__), key=lambda found: found.name):
        if package != "enginehouse" or not found.ispkg:
            yield f"{package}.{found.name}"


def _offered(module: str) -> list[str] | None:
    """The names in ``__all__``, or those that a module imports as themselves to offer them; ``None`` without any."""
    if any(_name(node) == "__all__" for node in _tree(module).body):
        return list(importlib.import_module(module).__all__)
    imports = [node for node in _tree(module).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names if alias.asname == alias.name]
    return names if names and module.startswith(_RE_EXPORTS) else None


def _section(module: str, names: list[str]) -> Iterator[str]:
    """The text of a module, and of what it offers: interfaces of hooks are on their own page."""
    interfaces = {kind.interface.__name__ for kind in KINDS if kind.interface}
    yield f"## `{module}`\n"
    yield (ast.get_docstring(_tree(module)) or "").partition("\n\n")[0].replace("``", "`") + "\n"
    homes: dict[str, list[str]] = {}
    for name in names:
        if name not in interfaces and not name.startswith("__"):
            homes.setdefault(_home(module, name), []).append(name)
    for home in homes:
        yield from _entries(home, homes[home])


def class_code(shown: type) -> str:
    """The class with its public fields and methods, and with their docstrings."""
    module = shown.__module__
    [node] = [node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == shown.__name__]
    return _class(node, _source(module).splitlines())


def _home(module: str, name: str) -> str:
    """The module that defines what ``module`` offers as ``name``."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _home(node.module, name)
    return module


def _entries(module: str, names: list[str]) -> Iterator[str]:
    """One text for each of ``names``, in the order of the source."""
    source = _source(module).splitlines()
    body = _tree(module).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if _name(node) in names:
            documentation = _text(node, following)
            yield f"### {_name(node)}\n\n" + (f"{documentation}\n\n" if documentation else "") + _code(node, source)


def _source(module: str) -> str:
    """The source of a module. It may be compiled, and then its own ``__file__`` may be in another folder."""
    package, _, name = module.rpartition(".")
    folder = Path(importlib.import_module(package or module).__path__[0])
    file = folder / f"{name}.py"
    return (file if package and file.exists() else folder / (name if package else "") / "__init__.py").read_text()


@cache
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
    return not _name(member).startswith("_") or _name(member) in _SPECIAL


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> str:
    documentation = ast.get_docstring(node)
    return _head(node, source) + (f"\n{indent(_docstring(documentation), '    ')}" if documentation else " ...")


def _head(node: ast.stmt, source: list[str]) -> str:
    """The lines of a constant or a field; of a class or a function, the lines above its body."""
    first, last = node.lineno, node.end_lineno
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
        last = max(node.lineno, node.body[0].lineno - 1)
    lines = [_FOR_TOOLS.sub("", line) for line in source[first - 1 : last]]
    return dedent("\n".join(lines)).rstrip().removesuffix(" ...")


def _docstring(text: str) -> str:
    return f'"""{text}' + ('\n"""' if "\n" in text else '"""')
