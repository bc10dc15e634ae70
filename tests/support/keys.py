"""Client keys in a configuration, and as clients send them."""

from __future__ import annotations


def key(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "key": f"{name}-secret", **more}


def bearer(name: str) -> bytes:
    return b"authorization: Bearer %s-secret" % name.encode()
