"""The doors through which requests come in: the fast door, the ASGI door and the WebSocket door.

``admission`` checks request heads, ``framing`` refuses ambiguous ones. ``fast`` is uvicorn's protocol, which keeps the
inference endpoints to itself. ``asgi`` does the same for other servers, for TLS and for tests.
"""
