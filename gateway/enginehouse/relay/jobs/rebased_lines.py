"""Header lines of an engine that clients find below a path of the gateway."""

from __future__ import annotations

import re

from enginehouse.relay.upstream.outside import Origin

_LINE = re.compile(rb"^(location|set-cookie): ([^\r\n]*)\r\n", re.MULTILINE)


def lines_below(lines: bytes, mount: bytes, origin: Origin) -> bytes:
    """``lines`` with the paths of ``Location`` and ``Set-Cookie`` below ``mount``, where clients find ``origin``.

    A redirect to another server stays as it is. Cookies lose their ``Domain``: they are for this engine alone.
    """
    if b"location: " not in lines and b"set-cookie: " not in lines:
        return lines

    def changed(line: re.Match[bytes]) -> bytes:
        name, value = line[1], line[2]
        value = _location(value, mount, origin) if name == b"location" else _cookie(value, mount, origin)
        return b"%s: %s\r\n" % (name, value)

    return _LINE.sub(changed, lines)


def _location(value: bytes, mount: bytes, origin: Origin) -> bytes:
    here = b"%s://%s" % (b"https" if origin.tls else b"http", origin.authority.encode())
    path = value.removeprefix(here)
    if path == value and (not value.startswith(b"/") or value.startswith(b"//")):
        return value  # relative to the client's own path, or another server
    if path[:1] not in (b"/", b"?", b"#", b""):
        return value  # another port
    return mount + (_below(path, origin) if path.startswith(b"/") else b"/" + path)


def _cookie(value: bytes, mount: bytes, origin: Origin) -> bytes:
    pair, *attributes = value.split(b";")
    kept = [pair]
    for attribute in attributes:
        name, _, path = attribute.strip().partition(b"=")
        if name.lower() == b"path" and path.startswith(b"/"):
            kept.append(b" Path=" + mount + _below(path, origin))
        elif name.lower() not in (b"path", b"domain"):  # without a path, that of the client's request counts
            kept.append(attribute)
    return b";".join(kept)


def _below(path: bytes, origin: Origin) -> bytes:
    """``path`` without the prefix that the gateway adds to every path of this engine."""
    prefix = origin.prefix.encode()
    inside = prefix and (path == prefix or path.startswith(prefix + b"/"))
    return (path[len(prefix) :] or b"/") if inside else path
