"""A gateway that decides where requests go, for a proxy that moves their bytes.

A picker is the gateway itself without the way of bytes, so it imports modules of the gateway that plugins do not:
pyproject.toml names them.

::

    picker       the gateway
    pick         one request, as the proxy reports it
    picking_job  what the gateway decides about it
"""
