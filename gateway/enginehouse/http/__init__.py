"""Bytes of clients become requests, and answers become bytes again.

``server`` has what all connections share, and makes a ``connection`` for each client; ``inbound`` is one request on it.
``relayed_paths`` knows which requests engines answer; a ``page`` answers all others. ``uploads`` are forms that pass to
their engine while they arrive, ``body_stream`` is a body that is read piece by piece, and ``web_socket`` is a client's
WebSocket.

``framing`` and ``request_lines`` refuse what the parser lets pass, ``time_limits`` end what takes too long, ``cors``
lets the pages of other origins read answers.
"""
