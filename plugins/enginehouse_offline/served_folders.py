"""Serves a configuration that is made of the files in some folders, as ``enginehouse run`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from enginehouse.app.reload import ChangeWatch, Stamp, stamp
from enginehouse.config.load_config import LoadedConfig, read_document
from enginehouse.processes.serve import adjusted, serve


def serve_document(
    document: Callable[[], Mapping[str, Any]],
    folders: Callable[[], Iterable[Path]],
    *,
    host: str | None,
    port: int | None,
    take_over: bool,
    greeting: Callable[[str], str],
) -> None:
    """Serve a configuration that is no file, as TOML has it, until a signal comes.

    It is read again when the files of ``folders`` change. ``host`` and ``port`` replace its own. ``greeting`` makes the
    text that is printed first, from the gateway's URL.
    """

    def read() -> LoadedConfig:
        loaded = read_document(dict(document()), None, os.environ)
        return loaded._replace(config=adjusted(loaded.config, host, port, watch=True))

    serve(read, watch_folders(folders), take_over=take_over, greeting=greeting)


def watch_folders(folders: Callable[[], Iterable[Path]]) -> ChangeWatch:
    """Notices that files of ``folders`` have appeared, vanished or changed."""

    def look() -> frozenset[tuple[Path, Stamp | None]]:
        found = (file for folder in folders() for file in folder.glob("*"))
        # unlike ``Path.is_file``, this raises nothing for a file out of reach
        return frozenset((file, stamp(file) if os.path.isfile(file) else None) for file in found)

    return ChangeWatch(look)
