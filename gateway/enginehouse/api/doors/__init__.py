"""The doors through which requests come in: the fast door, the ASGI door and the WebSocket door.

``admission`` checks request heads, ``framing`` refuses ambiguous ones, ``body_memory`` bounds what bodies take.
``fast`` is uvicorn's protocol, which keeps the inference endpoints to itself. ``asgi`` does the same for other servers,
for TLS and for tests; ``form`` takes forms there, and ``web_socket`` is a client's WebSocket.
"""
