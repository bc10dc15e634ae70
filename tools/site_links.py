"""A hook of MkDocs: links that leave ``docs/`` lead to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<=\]\()(\.\./[^)\s]+)(?=\))")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page's text, with such links made absolute."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def absolute(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return link[1] if target.startswith("docs/") else f"{config['repo_url']}/blob/main/{target}"

    return _LINK.sub(absolute, markdown)
